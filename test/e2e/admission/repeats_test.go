//go:build e2e

package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// A scheduler that repeats a binding is refused each time, and its pod is told so, and why; when there is capacity the
// very next one is carried out.
func TestRepeatedBindings(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.create("first", "3")
	require.NoError(t, c.BindDirectly("first", "node-0"))
	c.create("second", "2")
	for range 12 {
		require.ErrorContains(t, c.BindDirectly("second", "node-0"), "too little cpu")
	}
	c.AwaitEvent("Pod", "second", "BindingRepeated", "has asked 10 times within ")
	c.AwaitEvent("Pod", "second", "BindingRepeated", "too little cpu for pod default/second: requested 2 CPU, 1 free")
	c.Eventually(func(t *assert.CollectT) { // a decision is counted when it is answered
		assert.Equal(t, 11, c.Metric("globalreserve_repeated_bindings_total", "reason", "InsufficientResource", "scheduler",
			naive))
		assert.Equal(t, 12, c.decided(naive, "refused"))
	})
	var answer reserver.RefusalsAnswer
	require.NoError(t, c.Ledger.Get(t.Context(), "/v1/refusals?path=admission&pod=second", &answer))
	require.Len(t, answer.Refusals, 2)
	assert.Equal(t, []int{0, 10}, []int{answer.Refusals[0].Times, answer.Refusals[1].Times})
	var pending reserver.PendingAnswer
	require.NoError(t, c.Ledger.Get(t.Context(), "/v1/pending", &pending))
	require.Len(t, pending.Pods, 1)
	assert.Equal(t, 12, pending.Pods[0].Times)

	c.Delete("first")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("second", "node-0")) })
	c.RequireNeverOvercommitted()
}
