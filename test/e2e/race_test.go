package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

const (
	raceNodes  = 50
	raceRounds = 5
	nodeCPU    = 4000 // milli-CPU
)

// startRacers starts two kube-schedulers and the group scheduler.
func (c *cluster) startRacers(suffix string) (names []string) {
	c.startScheduler("default-scheduler"+suffix, "default-scheduler.yaml")
	c.startScheduler("second-scheduler"+suffix, "second-scheduler.yaml")
	c.startGroupScheduler("group-scheduler" + suffix)
	return []string{"default-scheduler" + suffix, "second-scheduler" + suffix, "group-scheduler" + suffix}
}

func (c *cluster) race() clusterload.Snapshot {
	c.t.Helper()
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: namespace, Capacity: raceNodes * nodeCPU, Percent: 120, Sizes: mixedSizes,
		Schedulers:     []string{"default-scheduler", "second-scheduler"},
		GroupScheduler: "group-scheduler", GroupSize: 8, GroupPercent: 40,
	})
	require.NoError(c.t, clusterload.CreatePods(c.t.Context(), c.Client(), pods))
	snapshot := c.awaitSettled(late)
	whole, half := snapshot.CountGroups()
	c.t.Logf("%d of %d pods bound, %d wait; %d groups whole, %d half, of %d; %d violations, at most %d nodes overcommitted at once",
		snapshot.Bound, snapshot.Pods, snapshot.Pending, whole, half, len(snapshot.Groups),
		len(c.watcher.Violations()), c.watcher.Peak().OvercommittedNodes)
	return snapshot
}

// TestRace lets two kube-schedulers and a group scheduler ask for 120% of what 50 nodes offer. First
// each decides on its own copy of the cluster, which shows that the verdict can be bad; then all of
// them go through GlobalReserve.
func TestRace(t *testing.T) {
	c := newCluster(t, raceNodes)
	t.Run("without GlobalReserve nodes are overcommitted", func(t *testing.T) { c.in(t).requireOvercommit() })
	c.clear()
	c.startServer(clusterload.ServerOptions{})
	c.startRacers("")
	for round := range raceRounds {
		t.Run(fmt.Sprintf("with GlobalReserve none is, round %d", round+1), func(t *testing.T) {
			c.in(t).requireWholeRace()
		})
	}
	c.requireNoDriftSeen()
}

// requireOvercommit races without the server, which ends badly: at the first try as a rule.
func (c *cluster) requireOvercommit() {
	c.t.Helper()
	names := c.startRacers("-alone")
	for round := 0; len(c.watcher.Violations()) == 0; round++ {
		require.Less(c.t, round, raceRounds, "no node was ever overcommitted: the race shows nothing")
		c.clear()
		c.race()
	}
	require.NotZero(c.t, c.watcher.Snapshot().OvercommittedNodes)
	for _, name := range names {
		require.NoError(c.t, c.StopPart(name))
	}
}

func (c *cluster) requireWholeRace() {
	c.t.Helper()
	c.clear()
	snapshot := c.race()
	c.requireNeverOvercommitted()
	require.Zero(c.t, c.watcher.Gaps(), "events were lost: the verdict is not complete")
	require.Zero(c.t, snapshot.OvercommittedNodes)
	require.Empty(c.t, snapshot.FittingPods, "pods wait although they fit")
	require.NotZero(c.t, snapshot.Pending, "everything fitted: this was no race for room")
	whole, half := snapshot.CountGroups()
	require.Zero(c.t, half, "groups of which only a part is bound")
	require.NotZero(c.t, whole)
	c.requireAgreement()
	require.Zero(c.t, c.metric(c.t, "globalreserve_bypassed_binds_total"))
}
