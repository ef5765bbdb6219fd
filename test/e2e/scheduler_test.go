package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestSchedulerConfigs runs a kube-scheduler with each file of scheduler-config/. The pods of every
// profile must have passed through the server.
func TestSchedulerConfigs(t *testing.T) {
	c := newServedCluster(t, 5)
	tests := map[string]struct{ profiles, verbs []string }{
		"default-scheduler.yaml": {[]string{"default-scheduler"}, []string{"filter", "bind"}},
		"second-scheduler.yaml":  {[]string{"second-scheduler"}, []string{"filter", "bind"}},
		"two-profiles.yaml":      {[]string{"default-scheduler", "packing-scheduler"}, []string{"filter", "prioritize", "bind"}},
	}
	const pods = 6
	for file, tt := range tests {
		t.Run(file, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			c.StartKubeScheduler(file, file)
			before := c.Scrape()
			for _, profile := range tt.profiles {
				c.Create(testbed.NewPods(pods, profile, profile, "500m")...)
			}
			snapshot := c.awaitSettled(late)
			require.Equal(t, pods*len(tt.profiles), snapshot.Bound)
			require.NoError(t, c.StopPart(file))
			after := c.Scrape()
			for _, profile := range tt.profiles {
				for _, verb := range tt.verbs {
					name := "globalreserve_decisions_total"
					grown := after.Sum(name, "verb", verb, "scheduler", profile) - before.Sum(name, "verb", verb, "scheduler", profile)
					require.GreaterOrEqual(t, grown, float64(pods), "%s calls for the pods of %s", verb, profile)
				}
			}
			c.requireAgreement()
			require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
		})
	}
	c.RequireNeverOvercommitted()
	c.requireNoDriftSeen()
}

// TestNodeObjectsOnTheWire runs a kube-scheduler that sends whole nodes instead of their names.
func TestNodeObjectsOnTheWire(t *testing.T) {
	c := newServedCluster(t, 3)
	content, err := clusterload.SchedulerConfig("default-scheduler.yaml", c.Server.URL)
	require.NoError(t, err)
	config := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &config))
	extender, ok := config["extenders"].([]any)[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, true, extender["nodeCacheCapable"], "the file is to send names")
	extender["nodeCacheCapable"] = false
	content, err = yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, c.StartScheduler(t.Context(), "default-scheduler", content))
	c.Create(testbed.NewPods(10, "pod", "default-scheduler", "1500m")...)
	snapshot := c.awaitSettled(late)
	require.Equal(t, 6, snapshot.Bound, "three nodes have capacity for two pods each")
	require.Equal(t, 4, snapshot.Pending)
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}

// withClass gives a pod a priority class.
func withClass(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = name }
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

// TestPreemptionOnFullNodes fills all nodes with pods of low priority.
func TestPreemptionOnFullNodes(t *testing.T) {
	c := newServedCluster(t, 3)
	c.CreatePriorityClass("high", 1000)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	// A scheduler that sees its victims go long before the server does is refused there, and makes others go elsewhere: that
	// is chance, and no fault. Where it was not refused, there are no such others.
	testbed.Measure(t, 3, func(try assert.TestingT) {
		c.clear()
		c.Create(testbed.NewPods(6, "low", "default-scheduler", "2")...)
		c.awaitSettled(late)
		before := c.Refusals("pod=high-0") + c.Refusals("pod=high-1")
		highs := c.Create(testbed.NewPods(2, "high", "default-scheduler", "2500m", withClass("high"))...)
		c.Eventually(func(t *assert.CollectT) {
			for _, high := range highs {
				assert.NotEmpty(t, c.Pod(high.Name).Spec.NodeName, high.Name)
			}
		})
		snapshot := c.awaitSettled(late)
		c.RequireNeverOvercommitted()
		c.requireAgreement()
		refused := c.Refusals("pod=high-0") + c.Refusals("pod=high-1") - before
		if !assert.Equal(try, 4, snapshot.Bound, "two nodes with one high pod each, one with two low ones") {
			require.Positive(t, refused, "more were evicted than had to be, and no node was refused")
		}
	})
}
