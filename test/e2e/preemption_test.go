//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestNodeObjectsOnTheWire runs a kube-scheduler that sends whole nodes instead of their names.
func TestNodeObjectsOnTheWire(t *testing.T) {
	c := newServedCluster(t, 3)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml", "nodeCacheCapable: true",
		"nodeCacheCapable: false")
	c.Create(testbed.NewPods(10, "pod", "default-scheduler", "1500m")...)
	snapshot := c.awaitSettled()
	require.Equal(t, 6, snapshot.Bound, "three nodes have capacity for two pods each")
	require.Equal(t, 4, snapshot.Pending)
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}

// withClass gives a pod a priority class.
func withClass(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = name }
}

// What pods leave that were evicted for another one is kept for that one: pods of a lower priority, which another
// scheduler has in its queue, do not get it, so that nobody is evicted in vain.
func TestEvictionsAreForThePreemptor(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes   int
		grace   time.Duration
		cpu     string
		evicted int
	}{
		"pods end after a second": {1, time.Second, "4", 4},
		"pods end at once":        {1, 0, "4", 4},
		"of twenty nodes":         {20, time.Second, "3", 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := newServedCluster(t, tt.nodes)
			c.CreatePriorityClass("high", 1000)
			c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
			c.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
			low := c.StartWorkload("low", 5*tt.nodes, tt.grace, func(name string) *corev1.Pod {
				return testbed.NewPod(name, "second-scheduler", "1")
			})
			low.AwaitFull(4 * tt.nodes)
			high := c.CreatePod("high", "default-scheduler", tt.cpu, withClass("high"))
			c.AwaitBound(high.Name)
			require.Equal(t, tt.evicted, low.Evicted())
			c.RequireNeverOvercommitted()
		})
	}
}

// What stands in the way of a preemptor goes, and is no pod that its scheduler knows: it is tried again at once.
func TestPreemptorIsWoken(t *testing.T) {
	c := newServedCluster(t, 1)
	c.CreatePriorityClass("high", 1000)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	low := c.CreatePod("low", nobody, "2")
	require.Empty(t, c.Bind(low, "node-0"))
	promised := gangOf([]*corev1.Pod{testbed.NewPod("promised", nobody, "2")}, "node-0")
	promised.TTLSeconds = 600
	require.True(t, c.Reserve(promised).Granted())
	high := c.CreatePod("high", "default-scheduler", "4", withClass("high"))
	c.Eventually(func(t *assert.CollectT) {
		assert.NotZero(t, c.Metric("globalreserve_decisions_total", "verb", "preempt", "result", "refused"))
	})
	c.AwaitRefused(high.Name)
	require.True(t, c.Unreserve(promised).Granted())
	c.AwaitBound(high.Name)
	require.Nil(t, c.FindPod(low.Name))
}

func TestPreemption(t *testing.T) {
	c := newCluster(t, 0)
	c.requirePreemption()
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}

// requirePreemption has a kube-scheduler make capacity for a pod of high priority. By its own account, the
// node with the victim of the lowest priority is the best one; the server knows that the rest of that
// node is promised to somebody, so that evicting there would help nobody.
func (c *cluster) requirePreemption() {
	c.T.Helper()
	c.addServed(2)
	for name, value := range map[string]int32{"low": 1, "middle": 10, "high": 1000} {
		c.CreatePriorityClass(name, value)
	}
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	low := c.CreatePod("low", nobody, "2", withClass("low"))
	middle := c.CreatePod("middle", nobody, "2", withClass("middle"))
	require.Empty(c.T, c.Bind(low, "node-0"))
	require.Empty(c.T, c.Bind(middle, "node-1"))
	promised := gangOf([]*corev1.Pod{testbed.NewPod("promised", nobody, "2")}, "node-0")
	promised.TTLSeconds = 600
	require.True(c.T, c.Reserve(promised).Granted())

	high := c.CreatePod("high", "default-scheduler", "3", withClass("high"))
	bound, _ := c.AwaitBound(high.Name)
	require.Equal(c.T, "node-1", bound.Spec.NodeName, "only there an eviction makes capacity")
	require.Equal(c.T, "node-0", c.Pod(low.Name).Spec.NodeName, "the pod that was in nobody's way lives on")
	names := map[string]bool{}
	for _, pod := range c.Pods() {
		names[pod.Name] = true
	}
	require.Equal(c.T, map[string]bool{"low": true, "high": true}, names)
	require.NotZero(c.T, c.Metric("globalreserve_decisions_total", "verb", "preempt", "scheduler", "default-scheduler"))
	require.True(c.T, c.Unreserve(promised).Granted())
}
