//go:build e2e

package limits

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestAutoscalersMakeNoNodesForLimitedPods: a kube-scheduler finds no node for four pods. Those that their namespace's
// quota holds back do not say so in the word that autoscalers look for: neither the one that the server was asked
// about, nor the one that fits no node by the scheduler's own count. The others do. When what has filled the quota is
// gone, one is bound, and the other one gets the word back.
func TestAutoscalersMakeNoNodesForLimitedPods(t *testing.T) {
	const scheduler = "default-scheduler"
	outer := newCluster(t, 1)
	startQuotaController(outer)
	inner := outer.In(t, "tenant")
	limit(&inner, "2")
	inner.CreateReservation("kept", "{ttl: 1h, slots: [{name: a, requests: {cpu: 2}}]}")
	inner.AwaitReservation("kept", "Available")
	outer.StartKubeScheduler(scheduler, "default-scheduler.yaml")

	nowhere := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} }
	outer.CreatePod("large", scheduler, "5")
	outer.CreatePod("nowhere", scheduler, "1", nowhere)
	awaitReason(outer, "large", corev1.PodReasonUnschedulable, "0/1 nodes")
	awaitReason(outer, "nowhere", corev1.PodReasonUnschedulable, "0/1 nodes")
	inner.CreatePod("asked", scheduler, "1")
	inner.CreatePod("not-asked", scheduler, "1", nowhere)
	awaitReason(&inner, "asked", corev1.PodReasonSchedulerError, "ResourceQuota")
	awaitReason(&inner, "not-asked", v1alpha1.PodReasonHeldBack, "ResourceQuota")
	for _, pod := range []string{"large", "nowhere"} {
		assert.Equal(t, corev1.PodReasonUnschedulable, scheduled(outer, pod).Reason)
	}
	// The scheduler goes on trying, and neither of the two writes again.
	asked, notAsked := inner.Pod("asked").ResourceVersion, inner.Pod("not-asked").ResourceVersion
	refusals := func() int {
		return outer.Metric("globalreserve_decisions_total", "verb", "filter", "result", "refused")
	}
	tried := refusals()
	outer.Eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, refusals(), tried+2) })
	assert.Equal(t, asked, inner.Pod("asked").ResourceVersion)
	assert.Equal(t, notAsked, inner.Pod("not-asked").ResourceVersion)

	require.NoError(t, inner.Reservations().Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	inner.AwaitBound("asked")
	awaitReason(&inner, "not-asked", corev1.PodReasonUnschedulable, "no limit holds the pod back")
	outer.RequireNeverOvercommitted()
}

// awaitReason waits until the condition PodScheduled of a pod has a reason, and a message with some text.
func awaitReason(c *testbed.Cluster, pod, reason, text string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		condition := scheduled(c, pod)
		assert.Equal(t, reason, condition.Reason)
		assert.Contains(t, condition.Message, text)
	})
}

// scheduled returns the condition PodScheduled of a pod, nothing where nobody has tried it yet.
func scheduled(c *testbed.Cluster, pod string) corev1.PodCondition {
	c.T.Helper()
	all := c.Pod(pod).Status.Conditions
	if at := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }); at >= 0 {
		return all[at]
	}
	return corev1.PodCondition{}
}

// startQuotaController starts the controller that counts what quotas are used for: the API server's own admission goes
// by that.
func startQuotaController(c *testbed.Cluster) {
	c.T.Helper()
	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(c.T, err)
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: "quota-controller", Path: filepath.Join(c.BinDir(), controlplane.ControllerManager), Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=resourcequota-controller", "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=200", "--kube-api-burst=400",
		},
	})
	require.NoError(c.T, err)
}

// limit gives a namespace a ResourceQuota, and returns when the API server and the ledger keep to it.
func limit(c *testbed.Cluster, cpu string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Create(c.T.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"requests.cpu": testbed.Requests(cpu)[corev1.ResourceCPU]},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	// more than any quota here: that is known once it is refused for it
	probe := testbed.NewPod("probe", testbed.Nobody, "1000")
	probe.Namespace, probe.UID = c.Namespace, "probe"
	c.Eventually(func(t *assert.CollectT) {
		quota, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Get(c.T.Context(), "quota", metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, quota.Status.Used)
		}
		_, err = c.Ledger.Filter(c.T.Context(), probe, "node-0")
		assert.ErrorContains(t, err, "ResourceQuota")
	})
}

// TestOnlyListedCallersActForALimitedScheduler: who is not listed gets nothing for the scheduler's pods on paths that
// the server does not carry out itself, and what waits for that goes on when the policy lists it.
func TestOnlyListedCallersActForALimitedScheduler(t *testing.T) {
	policy := func(more string) string {
		return fmt.Sprintf("schedulers: [{name: %s, callers: [somebody-else%s], limits: {cpu: 100%%}}]\n",
			testbed.Nobody, more)
	}
	file := testbed.Policy(t, policy(""))
	c := newCluster(t, 1, "--policy-file="+file)
	me, err := c.Client().AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)

	c.CreatePod("p", testbed.Nobody, "1")
	require.ErrorContains(t, c.BindDirectly("p", "node-0"), "may not act for scheduler")
	placed := testbed.NewPod("placed", testbed.Nobody, "1", func(p *corev1.Pod) { p.Spec.NodeName = "node-0" })
	_, err = c.Client().CoreV1().Pods(c.Namespace).Create(t.Context(), placed, metav1.CreateOptions{})
	require.ErrorContains(t, err, "may not act for scheduler")
	c.CreateReservation("by-hand", "{ttl: 10m, schedulerName: "+testbed.Nobody+", slots: [{name: a, requests: {cpu: 1}}]}")
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(context.Background(), "by-hand", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotEmpty(t, rsv.Status.Conditions) {
			assert.Contains(t, rsv.Status.Conditions[0].Message, "may not act for scheduler")
		}
	})
	trusted := c.CreatePod("trusted", testbed.Nobody, "1")
	require.Empty(t, c.Bind(trusted, "node-0"), "plain HTTP may act for all")

	testbed.ChangePolicy(t, file, policy(", "+me.Status.UserInfo.Username))
	c.AwaitReservation("by-hand", "Available")
	require.NoError(t, c.BindDirectly("p", "node-0"))
	c.RequireNeverOvercommitted()
}
