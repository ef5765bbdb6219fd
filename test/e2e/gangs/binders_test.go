//go:build chaos

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	// gangsMetric counts gangs by their state, and halfGang is the state of those that stayed short.
	gangsMetric   = "globalreserve_gangs"
	halfGangState = "Short"
)

// A gang is bound while others take all the capacity they can get. It becomes whole, or waits whole, and all that it
// does not have is theirs.
func TestGangBesideGreedyOthers(t *testing.T) {
	forBinders(t, []int{2, 8, 200}, func(c *cluster, bind bindFunc, g *gang) {
		others := c.createSingles()
		c.startBinder(bind, g)
		c.startBinder(atOnce, others)
		c.requireWholeOrNone(g)
		c.requireNothingKept()
	})
}

// Members are deleted half way and made again: those are new, and the gang is whole with them.
func TestMembersDeletedHalfWay(t *testing.T) {
	forBinders(t, []int{8}, func(c *cluster, bind bindFunc, g *gang) {
		stop := c.startBinder(inTurn(betweenTwo()), g)
		c.awaitMembers(g, 4)
		stop()
		again := []string{g.members[0], g.members[1], g.members[7]}
		c.kill(again...)
		c.CatchUp()
		left, _, _ := c.halves.of(c.key(g))
		c.createMembers(g, again...)
		c.startBinder(bind, g)
		c.awaitMembers(g, left+1) // so that it is known again how many are needed
		c.fillWithSingles()
		c.requireWhole(g)
		c.awaitFull()
		c.requireNothingKept()
	})
}

// A binder stops half way. The server binds the rest, whose capacity nobody else is given meanwhile.
func TestBinderStopsHalfWay(t *testing.T) {
	c := newCluster(t, 3, relaxed)
	g := c.createGang("gang", 8)
	stop := c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 3)
	stop()
	c.fillWithSingles()
	c.awaitMembers(g, 8)
	c.awaitFull()
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, c.Metric(gangsMetric, "state", halfGangState)) })
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}
