package gangs

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var gangPause = flag.Duration("gang-pause", 100*time.Millisecond, "time between two bindings of a binder that binds one after another")

func betweenTwo() time.Duration { return *gangPause }

const (
	// slack is how much later than at its deadline a gang may be seen whole, on a busy machine.
	slack = 10 * time.Second
	// gangsMetric counts gangs by their state, and halfGang is the state of those that stayed short.
	gangsMetric   = "globalreserve_gangs"
	halfGangState = "Short"
)

// A gang is bound while others take all the capacity they can get. It becomes whole, or waits whole, and all that it does
// not have is theirs.
func TestGangBesideGreedyOthers(t *testing.T) {
	forBinders(t, []int{2, 8, 200}, func(c *cluster, bind bindFunc, g *gang) {
		others := c.createSingles()
		c.startBinder(bind, g)
		c.startBinder(atOnce, others)
		c.requireWholeOrNone(g)
		c.requireNothingKept()
	})
}

// Others come half way through the bindings of a gang, which becomes whole all the same.
func TestOthersComeHalfWay(t *testing.T) {
	c := newCluster(t, 3, short)
	g := c.createGang("gang", 8)
	c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 4)
	c.fillWithSingles()
	c.requireWhole(g)
	c.awaitFull()
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
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

// All members are deleted half way: what was kept for them is anybody's at once, and not only at the deadline.
func TestGangDeletedHalfWay(t *testing.T) {
	c := newCluster(t, 3, shipped)
	g := c.createGang("gang", 8)
	stop := c.startBinder(inTurn(betweenTwo()), g)
	c.awaitMembers(g, 4)
	stop()
	c.fillWithSingles()
	c.awaitKept(8)
	c.kill(g.members...)
	require.Eventually(t, func() bool { return c.Watcher.Snapshot().Bound == 3*nodeCPUs }, c.deadline/2, testbed.Poll,
		"all capacity is free at once")
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// awaitKept waits until single pods have all but so many CPUs, and sees that they get no more of them.
func (c *cluster) awaitKept(cpus int) {
	c.T.Helper()
	wanted := len(c.nodes)*nodeCPUs - cpus
	c.Eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, len(c.singles()), wanted) })
	require.Never(c.T, func() bool { return len(c.singles()) > wanted }, testbed.Never, testbed.Poll, "the gang's capacity is not for others")
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

// singles are the single pods that are bound.
func (c *cluster) singles() (names []string) {
	for _, pod := range testbed.Bound(c.Pods()) {
		if pod.Spec.SchedulerName == blind {
			names = append(names, pod.Name)
		}
	}
	return names
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

// Two gangs that each need 60% of the cluster, a member of the one and a member of the other in turn: one becomes whole and
// the other waits whole, until the first one ends.
func TestTwoGangsOfMoreThanHalf(t *testing.T) {
	c := newCluster(t, 10, short)
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
