//go:build chaos

package gangs

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var gangRounds = flag.Int("gang-rounds", 1, "rounds of the race between Coscheduling and kube-scheduler")

const (
	raceNodes = 50
	raceGangs = 25
	raceAlone = 130 // pods without a gang
	raceTime  = 4 * time.Minute
	// quiet is longer than a scheduler leaves a pod alone whose bind was refused, which is ten seconds at most.
	quiet = 12 * time.Second
)

// Both schedulers are let go at once on more pods than there is capacity for. No node is overcommitted at any moment;
// in the end no gang is half, and as many are whole as the capacity left allows, within one.
func TestRaceWithCoscheduling(t *testing.T) {
	c := newCluster(t, raceNodes, shipped)
	c.startCoscheduler()
	c.startKubeScheduler()
	// A scheduler may be done before the other one begins, and there is nothing to refuse then: another round is needed.
	for round := 0; round < *gangRounds || c.decided("refused") == 0 && round < *gangRounds+5; round++ {
		c.race(fmt.Sprint("round-", round))
		snapshot := c.awaitQuiet()
		whole, half := snapshot.CountGangs()
		fit := c.gangsThatFit(snapshot)
		t.Logf("round %d: %d of %d pods bound; gangs: %d whole, %d half, of %d; %d more would fit",
			round, snapshot.Bound, snapshot.Pods, whole, half, len(snapshot.Gangs), fit)
		c.RequireNeverOvercommitted()
		assert.Zero(t, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
		assert.NotZero(t, snapshot.Pending, "everything fitted: this was no race for capacity")
		assert.NotZero(t, whole, "Coscheduling took no part")
		assert.Zero(t, half, "gangs that are half")
		assert.LessOrEqual(t, fit, 1, "gangs that wait although they would fit")
		c.clear()
	}
	assert.Positive(t, c.decided("refused"), "admission had nothing to refuse: this was no race")
}

// race has the pods of a round created while the schedulers are stopped, and lets these go at once.
func (c *cluster) race(prefix string) {
	c.T.Helper()
	pods := testbed.NewPods(raceAlone, prefix+"-alone", singles, "1")
	for i := range 10 { // with those of the gangs: 120% of the capacity
		pods[i*raceAlone/10].Spec.Containers[0].Resources.Requests = testbed.Requests("2")
	}
	for i := range raceGangs {
		name := fmt.Sprintf("%s-gang-%d", prefix, i)
		c.createPodGroup(name, gangSize)
		pods = slices.Insert(pods, (i*9)%len(pods), gangPods(name)...)
	}
	for _, s := range c.schedulers {
		require.NoError(c.T, s.Signal(syscall.SIGSTOP))
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	for _, s := range c.schedulers {
		require.NoError(c.T, s.Signal(syscall.SIGCONT))
	}
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
