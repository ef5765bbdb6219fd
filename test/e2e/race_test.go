package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	raceNodes  = 50
	raceRounds = 5
	nodeCPU    = 4000 // milli-CPU
)

func sizes(cpus ...string) (lists []corev1.ResourceList) {
	for _, cpu := range cpus {
		lists = append(lists, testbed.Requests(cpu))
	}
	return lists
}

// mixedSizes do not divide a node's 4 CPUs evenly, so that gaps of many sizes come up.
var mixedSizes = sizes("500m", "1", "750m", "1500m", "250m")

// startRacers starts two kube-schedulers and the gang scheduler.
func (c *cluster) startRacers(suffix string) (names []string) {
	c.StartKubeScheduler("default-scheduler"+suffix, "default-scheduler.yaml")
	c.StartKubeScheduler("second-scheduler"+suffix, "second-scheduler.yaml")
	_, err := clusterload.StartGangScheduler(c.T.Context(), c.ControlPlane, clusterload.GangSchedulerOptions{
		Name: "gang-scheduler" + suffix, SchedulerName: "gang-scheduler",
		ServerURL: c.Documented(), Command: []string{testbed.Program(c.T, "gangscheduler")},
	})
	require.NoError(c.T, err)
	return []string{"default-scheduler" + suffix, "second-scheduler" + suffix, "gang-scheduler" + suffix}
}

func (c *cluster) race() clusterload.Snapshot {
	c.T.Helper()
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: testbed.Namespace, Capacity: raceNodes * nodeCPU, Percent: 120, Sizes: mixedSizes,
		Schedulers:    []string{"default-scheduler", "second-scheduler"},
		GangScheduler: "gang-scheduler", GangSize: 8, GangPercent: 40,
	})
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	snapshot := c.awaitSettled(late)
	whole, half := snapshot.CountGangs()
	c.T.Logf("%d of %d pods bound, %d wait; %d gangs whole, %d half, of %d; %d violations, at most %d nodes overcommitted at once",
		snapshot.Bound, snapshot.Pods, snapshot.Pending, whole, half, len(snapshot.Gangs),
		len(c.Watcher.Violations()), c.Watcher.Peak().OvercommittedNodes)
	return snapshot
}

// TestRace lets two kube-schedulers and a gang scheduler ask for 120% of what 50 nodes offer. First
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
	c.T.Helper()
	names := c.startRacers("-alone")
	for round := 0; len(c.Watcher.Violations()) == 0; round++ {
		require.Less(c.T, round, raceRounds, "no node was ever overcommitted: the race shows nothing")
		c.clear()
		c.race()
	}
	require.NotZero(c.T, c.Watcher.Snapshot().OvercommittedNodes)
	for _, name := range names {
		require.NoError(c.T, c.StopPart(name))
	}
}

func (c *cluster) requireWholeRace() {
	c.T.Helper()
	c.clear()
	snapshot := c.race()
	c.RequireNeverOvercommitted()
	require.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	require.Zero(c.T, snapshot.OvercommittedNodes)
	require.Empty(c.T, snapshot.FittingPods, "pods wait although they fit")
	require.NotZero(c.T, snapshot.Pending, "everything fitted: this was no race for capacity")
	whole, half := snapshot.CountGangs()
	require.Zero(c.T, half, "gangs of which only a part is bound")
	require.NotZero(c.T, whole)
	c.requireAgreement()
	require.Zero(c.T, c.Metric("globalreserve_bypassed_binds_total"))
}
