//go:build chaos

package gangs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A binder stops half way. What was kept ends at the deadline, and the gang that stays short is told of. When its
// scheduler comes back, and there is capacity, the gang is made whole.
func TestBinderStopsHalfWay(t *testing.T) {
	c := newCluster(t, 3, relaxed)
	g := c.createGang("gang", 8)
	stop := c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 3)
	stop()
	bound, _, _ := c.halves.of(c.key(g))
	require.Less(t, bound, 8)
	stopSingles := c.fillWithSingles()
	c.awaitKept(8)
	c.awaitFull()
	c.requireNothingKept()
	c.requireReported(g)

	stopSingles()
	c.kill(c.singles()[:8-bound]...)
	c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 8)
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, c.Metric(gangsMetric, "state", halfGangState)) })
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// requireReported sees that an Event on a member and the metric say that a gang stays short.
func (c *cluster) requireReported(g *gang) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, 1, c.Metric(gangsMetric, "state", halfGangState))
		events, err := c.Client().CoreV1().Events(c.Namespace).List(c.T.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		told := false
		for i := range events.Items {
			about := events.Items[i].InvolvedObject.Name
			told = told || strings.HasPrefix(about, g.name) && strings.Contains(events.Items[i].Message, g.name)
		}
		assert.True(t, told, "an Event speaks of the gang")
	})
}
