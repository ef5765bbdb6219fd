package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestSchedulerConfigs runs a kube-scheduler with each file of scheduler-config/. The pods of every
// profile must have passed through the server.
func TestSchedulerConfigs(t *testing.T) {
	c := newServedCluster(t, 5)
	tests := map[string]struct{ profiles, verbs []string }{
		"default-scheduler.yaml": {[]string{"default-scheduler"}, []string{"filter", "bind"}},
		"second-scheduler.yaml":  {[]string{"second-scheduler"}, []string{"filter", "bind"}},
		"two-profiles.yaml": {
			[]string{"default-scheduler", "packing-scheduler"},
			[]string{"filter", "prioritize", "bind"},
		},
	}
	const pods = 6
	for file, tt := range tests {
		t.Run(file, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			c.StartKubeScheduler(file, file)
			before := c.Scrape()
			for _, profile := range tt.profiles {
				c.Create(testbed.NewPods(pods, profile, profile, "500m")...)
			}
			snapshot := c.awaitSettled()
			require.Equal(t, pods*len(tt.profiles), snapshot.Bound)
			require.NoError(t, c.StopPart(file))
			after := c.Scrape()
			for _, profile := range tt.profiles {
				for _, verb := range tt.verbs {
					name := "globalreserve_decisions_total"
					grown := after.Sum(name, "verb", verb, "scheduler", profile) - before.Sum(name, "verb", verb, "scheduler", profile)
					require.GreaterOrEqual(t, grown, float64(pods), "%s calls for the pods of %s", verb, profile)
				}
			}
			c.requireAgreement()
			require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
		})
	}
	c.RequireNeverOvercommitted()
	c.requireNoDriftSeen()
}

const (
	raceNodes = 50
	nodeCPU   = 4000 // milli-CPU
)

// mixedSizes do not divide a node's 4 CPUs evenly, so that gaps of many sizes come up.
var mixedSizes = []corev1.ResourceList{
	testbed.Requests("500m"), testbed.Requests("1"), testbed.Requests("750m"), testbed.Requests("1500m"),
	testbed.Requests("250m"),
}

// startRacers starts two kube-schedulers and the gang scheduler.
func (c *cluster) startRacers() {
	c.T.Helper()
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	_, err := clusterload.StartGangScheduler(c.T.Context(), c.ControlPlane, clusterload.GangSchedulerOptions{
		Name: "gang-scheduler", SchedulerName: "gang-scheduler",
		ServerURL: c.Documented(), Command: []string{testbed.Program(c.T, "gangscheduler")},
	})
	require.NoError(c.T, err)
}

func (c *cluster) race() clusterload.Snapshot {
	c.T.Helper()
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: testbed.Namespace, Capacity: raceNodes * nodeCPU, Percent: 120, Sizes: mixedSizes,
		Schedulers:    []string{"default-scheduler", "second-scheduler"},
		GangScheduler: "gang-scheduler", GangSize: 8, GangPercent: 40,
	})
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	snapshot := c.awaitSettled()
	whole, half := snapshot.CountGangs()
	c.T.Logf("%d of %d pods bound, %d wait; %d gangs whole, %d half, of %d; %d violations, at most %d nodes "+
		"overcommitted at once",
		snapshot.Bound, snapshot.Pods, snapshot.Pending, whole, half, len(snapshot.Gangs),
		len(c.Watcher.Violations()), c.Watcher.Peak().OvercommittedNodes)
	return snapshot
}

// TestRace lets two kube-schedulers and a gang scheduler ask for 120% of what 50 nodes offer, all of them through
// GlobalReserve.
func TestRace(t *testing.T) {
	c := newServedCluster(t, raceNodes)
	c.requireRace()
	c.requireAgreement()
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
	c.requireNoDriftSeen()
}

// requireRace starts the racers, and judges the race by what the API server has.
func (c *cluster) requireRace() {
	c.T.Helper()
	c.startRacers()
	snapshot := c.race()
	c.RequireNeverOvercommitted()
	require.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	require.Zero(c.T, snapshot.OvercommittedNodes)
	require.Empty(c.T, snapshot.FittingPods, "pods wait although they fit")
	require.NotZero(c.T, snapshot.Pending, "everything fitted: this was no race for capacity")
	whole, half := snapshot.CountGangs()
	require.Zero(c.T, half, "gangs of which only a part is bound")
	require.NotZero(c.T, whole)
}
