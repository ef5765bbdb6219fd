//go:build e2e

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// After a full stop of the cluster all of it starts again by itself, with the webhooks as they are shipped: those that
// a server needs are bound while there is none, by a kube-scheduler that knows of no extender; all others wait until
// there is one, and are bound then without anybody doing anything.
func TestFromNothing(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := &cluster{Cluster: testbed.NewCluster(t, cp)}
	c.AddNodes(2, controlplane.NodeTemplate{})
	c.webhook = c.StartAsked(clusterload.ServerOptions{})
	claims, err := c.webhook.Validating("resourceclaims.yaml")
	require.NoError(t, err)
	_, err = c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Create(t.Context(), claims, metav1.CreateOptions{})
	require.NoError(t, err)
	const scheduler = "default-scheduler"
	require.NoError(t, c.StartScheduler(t.Context(), scheduler, nil))
	c.CreatePod("before", scheduler, "1")
	c.AwaitBound("before")

	require.NoError(t, c.Kill(scheduler))
	system, own := *c, *c
	system.Namespace, own.Namespace = metav1.NamespaceSystem, "globalreserve-system"
	system.CreatePod("network", scheduler, "500m")
	own.CreatePod("server", scheduler, "500m")
	waiting := c.Create(testbed.NewPods(3, "waiting", scheduler, "1")...)
	for _, part := range []string{clusterload.ServerName, controlplane.APIServer, controlplane.Etcd} {
		require.NoError(t, c.Kill(part))
	}
	for _, part := range []string{controlplane.Etcd, controlplane.APIServer, scheduler} {
		require.NoError(t, c.StartPart(t.Context(), part))
	}

	system.AwaitBound("network")
	own.AwaitBound("server")
	for _, pod := range waiting {
		assert.Contains(t, c.AwaitRefused(pod.Name), "failed calling webhook", pod.Name)
	}
	require.NoError(t, c.StartPart(t.Context(), clusterload.ServerName),
		"what the kubelet does with the pod that is bound now")
	for _, pod := range waiting {
		c.AwaitBound(pod.Name)
	}
	require.Len(t, testbed.Bound(c.Pods()), 4)
	for _, pod := range append(waiting, c.Pod("before"), system.Pod("network"), own.Pod("server")) {
		c.Eventually(func(t *assert.CollectT) { assert.Equal(t, "Bound", c.allocationState(pod)) })
	}
	c.RequireNeverOvercommitted()
	require.Zero(t, c.bypassed(scheduler))
}

// allocationState is that of a pod's allocation.
func (c *cluster) allocationState(pod *corev1.Pod) string {
	if a := c.AllocationOf(pod); a != nil {
		return a.State
	}
	return "none"
}

// What pods leave that were evicted for another one is kept for that one, where schedulers are not behind the extender,
// too: it is known by the node that the pod is nominated for.
func TestEvictionsAreForThePreemptor(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.CreatePriorityClass("high", 1000)
	alone := c.Cluster
	alone.Ledger = testbed.Caller{}
	alone.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	alone.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	low := c.StartWorkload("low", 8, time.Second, func(name string) *corev1.Pod {
		return testbed.NewPod(name, "second-scheduler", "1")
	})
	low.AwaitFull(4)
	high := c.CreatePod("high", "default-scheduler", "4", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "high" })
	c.AwaitBound(high.Name)
	require.Equal(t, 4, low.Evicted())
	c.RequireNeverOvercommitted()
}
