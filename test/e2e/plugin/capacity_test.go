//go:build e2e

package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A pod goes to the node that keeps capacity for it, uses that capacity, and says so; another one cannot.
func TestReservedCapacityIsUsed(t *testing.T) {
	c := newCluster(t, setup{nodes: 3, cpu: "4"})
	const home = 2
	c.CreateReservation("kept", `{ttl: 10m, consumers: {index: team}, slots: [{name: s, nodeName: `+c.nodes[home]+
		`, requests: {cpu: 4}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	for _, name := range []string{"stranger-0", "stranger-1", "stranger-2"} {
		c.create(name, "4")
	}
	c.bound("stranger-0")
	c.bound("stranger-1")
	assert.Contains(t, c.AwaitRefused("stranger-2"), "GlobalReserve: not enough capacity left on the node")
	c.create("member", "4", testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "team"))
	assert.Equal(t, c.nodes[home], c.bound("member"))
	assert.Equal(t, testbed.Namespace+"/kept/s", c.Pod("member").Annotations[v1alpha1.MatchedReservationAnnotation])
	c.RequireNeverOvercommitted()
}

// kube-scheduler's preemption works on a node that is full, and evicts nobody for capacity that others have reserved.
func TestPreemption(t *testing.T) {
	c := newCluster(t, setup{nodes: 2, cpu: "4"})
	c.CreatePriorityClass("low", 10, corev1.PreemptNever)
	c.CreatePriorityClass("preempting", 1000)
	of := func(class string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
	}
	c.reserve("other", "3", c.nodes[0], time.Hour) // with 1 CPU left
	// Often, because the ledger and the scheduler hear of a victim's end in either order.
	for round := range 20 {
		name := func(pod string) string { return fmt.Sprintf("%s-%d", pod, round) }
		c.create(name("victim"), "3", of("low"))
		require.Equal(t, c.nodes[1], c.bound(name("victim")))
		c.create(name("small"), "1", of("low"))
		c.bound(name("small"))
		c.create(name("urgent"), "3", of("preempting"))
		assert.Equal(t, c.nodes[1], c.bound(name("urgent")), "evicting from the other node would not help")
		c.Delete(name("small"))
		c.Delete(name("urgent"))
	}
	c.RequireNeverOvercommitted()
}

// The capacity of a pod that is deleted is kept for a pod that waits, and wakes it: the ledger has the capacity
// before anybody can read whose it is.
func TestKeptCapacityWakesThePodItIsFor(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	member := testbed.Annotated(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "team")
	c.create("first", "4", member)
	c.bound("first")
	c.create("stranger", "4")
	c.AwaitRefused("stranger")
	c.create("second", "4", member)
	c.AwaitRefused("second")
	c.Delete("first")
	c.bound("second")
	assert.Contains(t, c.Pod("second").Annotations[v1alpha1.MatchedReservationAnnotation], testbed.Namespace+"/first")
	c.RequireNeverOvercommitted()
}

// A pod the ledger refused is bound when capacity is freed, whatever frees it: that no event of the cluster tells of a
// reservation's end is what the plugin has to make up for. kube-scheduler itself would try the pod again after five
// minutes, for which nobody waits here.
func TestRefusedPodsWake(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	node := c.nodes[0]
	// Each takes the node, has the pod refused, and frees the node.
	for name, free := range map[string]func(c *cluster){
		"a reservation is given back": func(c *cluster) {
			r := c.reserve("other", "4", node, time.Hour)
			c.refusedPod()
			refusal := c.AwaitRefusal("path=plugin&pod=waiting")
			assert.Equal(c.T, map[string]int{"InsufficientResource": 1}, refusal.Reasons)
			c.unreserve(r)
		},
		"a reservation expires": func(c *cluster) {
			c.reserve("other", "4", node, 12*time.Second) // the pod is refused within it
			c.refusedPod()
		},
		"a pod is deleted": func(c *cluster) {
			c.create("other", "4")
			c.bound("other")
			c.refusedPod()
			c.Delete("other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			free(c)
			assert.Equal(t, node, c.bound("waiting"))
			c.Delete("waiting")
			c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
		})
	}
}

// refusedPod makes the pod "waiting" that needs a whole node and is refused.
func (c *cluster) refusedPod() {
	c.T.Helper()
	c.create("waiting", "4")
	c.AwaitRefused("waiting")
}

// A pod whose volume cannot be bound fails in PreBind, long after Reserve: its capacity is given back, at
// once and not at the deadline.
func TestReserveIsUndoneWhenTheCycleFailsLater(t *testing.T) {
	options := setup{nodes: 1, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		Args: map[string]any{"reservationTTL": "1h"},
		Change: func(config map[string]any) {
			for _, p := range config["profiles"].([]any) {
				profile := p.(map[string]any)
				profile["pluginConfig"] = append(profile["pluginConfig"].([]any), map[string]any{
					"name": "VolumeBinding", "args": map[string]any{"bindTimeoutSeconds": 3},
				})
			}
		},
	}}
	c := newCluster(t, options)
	c.createWithoutVolume()
	c.awaitClaims(1, "Reserve has taken the capacity")
	c.awaitClaims(0, "and Unreserve has given it back")
	assert.Empty(t, c.Pod("unlucky").Spec.NodeName)
}

// createWithoutVolume creates the pod "unlucky" with a volume that is waited for in PreBind and never comes: nobody
// provisions it.
func (c *cluster) createWithoutVolume() {
	c.T.Helper()
	c.Apply(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: nobody}
provisioner: example.com/nobody
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: nobody, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	c.create("unlucky", "4", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	})
}

// TestAutoscalersMakeNoNodesForLimitedPods: a pod over its scheduler's limit is not Unschedulable, which autoscalers
// make nodes for, and is placed when the limit lets it in.
func TestAutoscalersMakeNoNodesForLimitedPods(t *testing.T) {
	file := testbed.Policy(t,
		"schedulers: [{name: "+scheduler+", callers: [\"globalreserve:trusted\"], limits: {cpu: 1}}]\n")
	c := newCluster(t, setup{nodes: 1, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		ServerArgs: map[string]any{"policyFile": file},
	}})
	c.create("first", "1")
	c.bound("first")
	c.create("second", "1")
	c.Eventually(func(t *assert.CollectT) {
		for _, condition := range c.Pod("second").Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				assert.Equal(t, v1alpha1.PodReasonHeldBack, condition.Reason)
				assert.Contains(t, condition.Message, "schedulers.limits")
				return
			}
		}
		assert.Fail(t, "nobody has tried it yet")
	})
	c.Delete("first")
	c.bound("second")
}
