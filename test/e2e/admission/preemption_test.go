//go:build e2e

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

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
