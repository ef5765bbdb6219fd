//go:build e2e

package dra

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

var sliceCount = flag.Int("slices", 2000, "how many ResourceSlices there are beside those of the nodes")

// While the server is away, Fail keeps devices from being given, and not from being taken away. With Ignore a device
// comes to two owners; when the server is back, a third claim is not given it before both have ended, in whatever
// order.
func TestServerIsAway(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.startWebhook()
	c.createClaims("before")
	require.NoError(t, c.allocate("before", false, result("node-0", "gpu-1")))
	require.NoError(t, c.StopPart(clusterload.ServerName))
	c.createClaims("a", "b", "c")
	require.ErrorContains(t, c.allocate("a", false, result("node-0", "gpu-0")), "failed calling webhook")
	require.NoError(t, c.release(t.Context(), "before"))

	for first := range 2 {
		c.setPolicy("Ignore")
		owners := []string{"a", "b"}
		for _, name := range owners {
			c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate(name, false, result("node-0", "gpu-0"))) })
		}
		c.verdict.catchUp(t, c.Client())
		require.Len(t, c.verdict.doubled(), 1, "the verdict finds what is wrong")
		c.setPolicy("Fail")
		c.Eventually(func(t *assert.CollectT) {
			assert.ErrorContains(t, c.allocate("c", true, result("node-0", "gpu-0")), "failed calling webhook")
		})
		require.NoError(t, c.StartPart(t.Context(), clusterload.ServerName))
		c.Eventually(func(t *assert.CollectT) {
			assert.ErrorContains(t, c.allocate("c", false, result("node-0", "gpu-0")),
				"is allocated to more ResourceClaims than it may be")
		})
		require.Equal(t, 1, c.Metric("globalreserve_dra_double_devices"))
		require.NoError(t, c.release(t.Context(), owners[first]))
		c.Eventually(func(t *assert.CollectT) {
			assert.ErrorContains(t, c.allocate("c", false, result("node-0", "gpu-0")), "is allocated to ResourceClaim default/"+
				owners[1-first])
		})
		require.NoError(t, c.allocate("c", true, result("node-0", "gpu-1")), "dry")
		require.NoError(t, c.release(t.Context(), owners[1-first]))
		c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate("c", false, result("node-0", "gpu-0"))) })
		require.NoError(t, c.StopPart(clusterload.ServerName))
		require.NoError(t, c.release(t.Context(), "c"))
		c.createClaims("a", "b", "c")
	}
}

// A driver publishes its devices anew, another one vanishes, and there are many slices: who has a device keeps it, and
// a server that starts knows all of them.
func TestSlicesComeAndGo(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.each(*sliceCount, func(ctx context.Context, i int) error {
		_, err := c.Client().ResourceV1().ResourceSlices().Create(ctx, newSlice(fmt.Sprintf("other-%d", i), "node-0", 1, 1),
			metav1.CreateOptions{})
		return err
	})
	c.startWebhook()
	all := c.Client().ResourceV1().ResourceSlices()
	c.createClaims("a", "b", "c", "d")
	require.NoError(t, c.allocate("a", false, result("node-0", "gpu-0")))
	require.NoError(t, c.allocate("b", false, result("node-1", "gpu-0")))

	require.NoError(t, all.Delete(t.Context(), "node-0-1", metav1.DeleteOptions{}))
	c.createSlice("node-0", 2, 2)
	require.NoError(t, all.Delete(t.Context(), "node-1-1", metav1.DeleteOptions{}))
	for _, node := range []string{"node-0", "node-1"} {
		assert.ErrorContains(t, c.allocate("c", false, result(node, "gpu-0")), "is allocated to ResourceClaim", node)
	}
	require.NoError(t, c.allocate("c", false, result("node-0", "gpu-1")))
	require.NoError(t, c.StopPart(clusterload.ServerName))
	begun := time.Now()
	require.NoError(t, c.StartPart(t.Context(), clusterload.ServerName))
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.allocate("d", false, result("node-1", "gpu-0")), "is allocated to ResourceClaim default/b")
	})
	t.Logf("a server with %d slices decides %v after it was started", *sliceCount,
		time.Since(begun).Round(time.Millisecond))
	_, err := c.claimClient().Patch(t.Context(), "d", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, c.allocate("d", false, result("other-7", "gpu-0")))
	require.Empty(t, c.verdict.joins())
}
