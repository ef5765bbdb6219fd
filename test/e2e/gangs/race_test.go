//go:build chaos

package gangs

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var gangRounds = flag.Int("gang-rounds", 1, "rounds of a race between a gang scheduler and kube-scheduler")

const (
	raceNodes = 50
	raceGangs = 25
	raceAlone = 130 // pods without a gang
	raceTime  = 4 * time.Minute
	// quiet is longer than a scheduler leaves a pod alone whose bind was refused, which is ten seconds at most.
	quiet = 12 * time.Second
)

func TestRaceWithCoscheduling(t *testing.T) { newCluster(t, raceNodes, shipped).requireRaces() }

func TestRaceWithVolcano(t *testing.T) { newVolcanoCluster(t, raceNodes, shipped).requireRaces() }

// requireRaces has both schedulers let go on more pods than there is capacity for. No node is overcommitted at
// any moment; in the end no gang is half, and as many are whole as the capacity left allows, within one.
func (c *cluster) requireRaces() {
	c.T.Helper()
	c.startGangScheduler()
	c.startKubeScheduler()
	// A scheduler may be done before the other one begins, and there is nothing to refuse then: another round is needed.
	for round := 0; round < *gangRounds || c.decided("refused") == 0 && round < *gangRounds+5; round++ {
		c.race(fmt.Sprint("round-", round))
		snapshot := c.awaitQuiet()
		whole, half := snapshot.CountGangs()
		fit := c.gangsThatFit(snapshot)
		c.T.Logf("round %d: %d of %d pods bound; gangs: %d whole, %d half, of %d; %d more would fit",
			round, snapshot.Bound, snapshot.Pods, whole, half, len(snapshot.Gangs), fit)
		c.RequireNeverOvercommitted()
		assert.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
		assert.NotZero(c.T, snapshot.Pending, "everything fitted: this was no race for capacity")
		assert.NotZero(c.T, whole, "%s took no part", c.others.scheduler)
		assert.Zero(c.T, half, "gangs that are half")
		assert.LessOrEqual(c.T, fit, 1, "gangs that wait although they would fit")
		c.Clear()
	}
	assert.Positive(c.T, c.decided("refused"), "admission had nothing to refuse: this was no race")
}

// race has the pods of a round created while the schedulers are stopped, and lets these go.
func (c *cluster) race(prefix string) {
	c.T.Helper()
	alone := testbed.NewPods(raceAlone, prefix+"-alone", singles, "1")
	for i := range 10 { // with those of raceGangs gangs: 120% of the capacity
		alone[i*raceAlone/10].Spec.Containers[0].Resources.Requests = testbed.Requests("2")
	}
	gangs := raceGangs
	if c.others.sessions { // it begins first, and still binds when kube-scheduler comes
		gangs = raceNodes * nodeCPUs / gangSize
	}
	c.createStopped(prefix, gangs, alone)
	c.letGo()
}

// awaitQuiet waits until no pod has been bound for a while, and nothing is kept for any.
func (c *cluster) awaitQuiet() clusterload.Snapshot {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), raceTime)
	defer cancel()
	var snapshot clusterload.Snapshot
	require.Eventually(c.T, func() bool {
		snapshot = c.Watcher.Snapshot()
		return time.Since(snapshot.LastChange) > quiet && len(c.reserved()) == 0
	}, raceTime, testbed.Poll, "pods still come, go or are bound")
	require.NoError(c.T, c.Watcher.CatchUp(ctx))
	return snapshot
}

// gangsThatFit is how many of the gangs that wait whole would fit beside what is bound.
func (c *cluster) gangsThatFit(snapshot clusterload.Snapshot) int {
	c.T.Helper()
	free := map[string]int64{}
	for _, node := range c.nodes {
		free[node] = nodeCPUs * 1000
	}
	for _, pod := range testbed.Bound(c.Pods()) {
		free[pod.Spec.NodeName] -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	members := int64(0)
	for _, cpu := range free {
		members += cpu / 1000
	}
	waiting := 0
	for _, g := range snapshot.Gangs {
		if g.Bound == 0 {
			waiting++
		}
	}
	return min(waiting, int(members/gangSize))
}
