//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// bindSoon binds pods as soon as the server has seen what lets it. A server binds them itself where that takes long.
func (c *cluster) bindSoon(names ...string) {
	c.T.Helper()
	for _, name := range names {
		c.Eventually(func(t *assert.CollectT) {
			if err := c.bindNow(c.T.Context(), name, c.nodes[0]); c.Pod(name).Spec.NodeName == "" {
				assert.NoError(t, err)
			}
		})
	}
}

// A gang waits, and its controller makes pods that say that fewer will do, of which it wants to see one run before it
// deletes the others.
func TestWaitingGangIsMadeAnewForFewer(t *testing.T) {
	c := newCluster(t, 1, short)
	c.createMembers(&gang{name: "gang", minimum: nodeCPUs + 1}, "old-0", "old-1", "old-2", "old-3", "old-4")
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.bindNow(c.T.Context(), "old-0", c.nodes[0]), "more pods of its gang need capacity")
	})
	c.createMembers(&gang{name: "gang", minimum: nodeCPUs}, "new-0")
	c.bindSoon("new-0", "old-0", "old-1", "old-2")
	c.awaitFull()
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}
