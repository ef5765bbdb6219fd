package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// TestSchedulerConfigs runs a kube-scheduler with each file of scheduler-config/. The pods of every
// profile must have passed through the server.
func TestSchedulerConfigs(t *testing.T) {
	c := newServedCluster(t, 5)
	tests := map[string][]string{
		"default-scheduler.yaml": {"default-scheduler"},
		"second-scheduler.yaml":  {"second-scheduler"},
		"two-profiles.yaml":      {"default-scheduler", "packing-scheduler"},
	}
	const pods = 6
	for file, profiles := range tests {
		t.Run(file, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			c.startScheduler(file, file)
			before := c.scrape(t)
			for _, profile := range profiles {
				c.create(newPods(pods, profile, profile, "500m")...)
			}
			snapshot := c.awaitSettled(late)
			require.Equal(t, pods*len(profiles), snapshot.Bound)
			require.NoError(t, c.StopPart(file))
			after := c.scrape(t)
			for _, profile := range profiles {
				for _, verb := range []string{"filter", "prioritize", "bind"} {
					name := "globalreserve_decisions_total"
					grown := after.Sum(name, "verb", verb, "scheduler", profile) - before.Sum(name, "verb", verb, "scheduler", profile)
					require.GreaterOrEqual(t, grown, float64(pods), "%s calls for the pods of %s", verb, profile)
				}
			}
			c.requireAgreement()
			require.Zero(t, c.metric(t, "globalreserve_bypassed_binds_total"))
		})
	}
	c.requireNeverOvercommitted()
	c.requireNoDriftSeen()
}

// TestNodeObjectsOnTheWire runs a kube-scheduler that sends whole nodes instead of their names.
func TestNodeObjectsOnTheWire(t *testing.T) {
	c := newServedCluster(t, 3)
	content, err := clusterload.SchedulerConfig("default-scheduler.yaml", c.server.URL)
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
	c.create(newPods(10, "pod", "default-scheduler", "1500m")...)
	snapshot := c.awaitSettled(late)
	require.Equal(t, 6, snapshot.Bound, "three nodes have room for two pods each")
	require.Equal(t, 4, snapshot.Pending)
	c.requireNeverOvercommitted()
	c.requireAgreement()
}

func (c *cluster) createPriorityClass(name string, value int32) {
	c.t.Helper()
	_, err := c.Client().SchedulingV1().PriorityClasses().Create(c.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// newEvictable returns a pod that goes at once when it is evicted: there is no kubelet to wait for.
func newEvictable(name, scheduler, cpu, priorityClass string) *corev1.Pod {
	pod := newPod(name, scheduler, cpu)
	pod.Spec.PriorityClassName = priorityClass
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	return pod
}

// TestPreemption has a kube-scheduler make room for a pod of high priority. By its own account, the
// node with the victim of the lowest priority is the best one; the server knows that the rest of that
// node is promised to somebody, so that evicting there would help nobody.
func TestPreemption(t *testing.T) {
	c := newServedCluster(t, 2)
	for name, value := range map[string]int32{"low": 1, "middle": 10, "high": 1000} {
		c.createPriorityClass(name, value)
	}
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	low := c.create(newEvictable("low", nobody, "2", "low"))[0]
	middle := c.create(newEvictable("middle", nobody, "2", "middle"))[0]
	require.Empty(t, c.bind(t, low, "node-0"))
	require.Empty(t, c.bind(t, middle, "node-1"))
	promised := groupOf([]*corev1.Pod{newPod("promised", nobody, "2")}, "node-0")
	promised.TTLSeconds = 600
	require.True(t, granted(c.reserve(t, promised)))

	high := c.create(newEvictable("high", "default-scheduler", "3", "high"))[0]
	node, _ := c.awaitBound(high, soon)
	require.Equal(t, "node-1", node, "only there an eviction makes room")
	require.Equal(t, "node-0", c.get(t, low).Spec.NodeName, "the pod that was in nobody's way lives on")
	names := map[string]bool{}
	for _, pod := range c.list(t) {
		names[pod.Name] = true
	}
	require.Equal(t, map[string]bool{"low": true, "high": true}, names)
	require.NotZero(t, c.metric(t, "globalreserve_decisions_total", "verb", "preempt", "scheduler", "default-scheduler"))
	require.True(t, granted(c.unreserve(t, groupOf(promised.Pods, promised.Nodes...))))
	c.requireNeverOvercommitted()
	c.requireAgreement()
}

// TestPreemptionOnFullNodes fills all nodes with pods of low priority.
func TestPreemptionOnFullNodes(t *testing.T) {
	c := newServedCluster(t, 3)
	c.createPriorityClass("high", 1000)
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	for i := range 6 {
		low := newEvictable("low-"+string(rune('a'+i)), "default-scheduler", "2", "")
		c.create(low)
	}
	c.awaitSettled(soon)
	var highs []*corev1.Pod
	for _, name := range []string{"high-a", "high-b"} {
		highs = append(highs, c.create(newEvictable(name, "default-scheduler", "2500m", "high"))...)
	}
	eventually(t, soon, func(t *assert.CollectT) {
		for _, high := range highs {
			assert.NotEmpty(t, c.get(t, high).Spec.NodeName, high.Name)
		}
	})
	snapshot := c.awaitSettled(soon)
	require.Equal(t, 4, snapshot.Bound, "two nodes with one high pod each, one with two low ones")
	c.requireNeverOvercommitted()
	c.requireAgreement()
}
