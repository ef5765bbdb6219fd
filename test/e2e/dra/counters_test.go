//go:build e2e

package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// TestCountersOfDevicesPublishedNoMore has a driver publish its pool anew without a device that a claim has: nobody
// knows how much of the shared counter that one takes, so the rest is not given, by a new server neither.
func TestCountersOfDevicesPublishedNoMore(t *testing.T) {
	c := newCluster(t, 1, 0)
	c.startWebhook()
	c.createClaims("first", "second")
	c.publishPartitions(2, map[string]string{"part-a": "20Gi", "part-b": "20Gi", "whole": "40Gi"})
	c.Eventually(func(t *assert.CollectT) {
		assert.NoError(t, c.allocate("first", false, result("node-0", "part-a")))
	})
	c.publishPartitions(3, map[string]string{"part-b": "20Gi", "whole": "40Gi"})
	isRefused := func() {
		t.Helper()
		c.Eventually(func(t *assert.CollectT) {
			assert.ErrorContains(t, c.allocate("second", true, result("node-0", "whole")),
				"ResourceClaim "+namespace+"/first has: no ResourceSlice names these any more")
		})
		require.Error(t, c.allocate("second", false, result("node-0", "whole")))
	}
	isRefused()
	require.NoError(t, c.StopPart(clusterload.ServerName))
	require.NoError(t, c.StartPart(t.Context(), clusterload.ServerName))
	isRefused()
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))
	require.NoError(t, c.release(t.Context(), "first"))
	c.Eventually(func(t *assert.CollectT) {
		assert.NoError(t, c.allocate("second", false, result("node-0", "whole")))
	})
}

// publishPartitions publishes partitions of one device of node-0 with 40Gi in the place of what was published before.
func (c *cluster) publishPartitions(generation int64, partitions map[string]string) {
	c.T.Helper()
	counters := func(amount string) map[string]resourcev1.Counter {
		return map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(amount)}}
	}
	devices := newSlice("node-0", "node-0", 0, generation)
	for name, amount := range partitions {
		devices.Spec.Devices = append(devices.Spec.Devices, resourcev1.Device{
			Name: name, ConsumesCounters: []resourcev1.DeviceCounterConsumption{{
				CounterSet: "gpu", Counters: counters(amount),
			}},
		})
	}
	shared := newSlice("node-0", "node-0", 0, generation)
	shared.Name = fmt.Sprintf("counters-%d", generation)
	shared.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "gpu", Counters: counters("40Gi")}}
	slices := c.Client().ResourceV1().ResourceSlices()
	require.NoError(c.T, slices.DeleteCollection(c.T.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	for _, slice := range []*resourcev1.ResourceSlice{shared, devices} {
		slice.Spec.Pool.ResourceSliceCount = 2
		_, err := slices.Create(c.T.Context(), slice, metav1.CreateOptions{})
		require.NoError(c.T, err)
	}
}
