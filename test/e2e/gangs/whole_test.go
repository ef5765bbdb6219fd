//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Others come half way through the bindings of a gang, which becomes whole all the same.
func TestOthersComeHalfWay(t *testing.T) {
	c := newCluster(t, 3, long)
	g := c.createGang("gang", 8)
	c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 4)
	c.fillWithSingles()
	c.requireWhole(g)
	c.awaitFull()
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// All members are deleted half way: what was kept for them is anybody's at once, and not only at the deadline.
func TestGangDeletedHalfWay(t *testing.T) {
	c := newCluster(t, 3, long)
	g := c.createGang("gang", 8)
	stop := c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 4)
	stop()
	c.fillWithSingles()
	c.awaitKept(8)
	c.kill(g.members...)
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, 3*nodeCPUs, c.Watcher.Snapshot().Bound, "all capacity is free at once")
	})
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// Two gangs that each need 60% of the cluster, a member of the one and a member of the other in turn: one becomes whole
// and the other waits whole, until the first one ends.
func TestTwoGangsOfMoreThanHalf(t *testing.T) {
	c := newCluster(t, 10, long)
	both := []*gang{c.createGang("first", 24), c.createGang("second", 24)}
	c.startBinder(inTurn(betweenTwo()), both...)
	var whole, waiting *gang
	c.Eventually(func(t *assert.CollectT) {
		for i, g := range both {
			if bound, _, _ := c.halves.of(c.key(g)); bound == g.minimum {
				whole, waiting = g, both[1-i]
			}
		}
		assert.NotNil(t, whole, "one gang is whole")
	})
	_, most, _ := c.halves.of(c.key(waiting))
	assert.Zero(t, most, "members of %s that were bound", waiting.name)
	c.kill(whole.members...)
	c.requireWhole(waiting)
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}
