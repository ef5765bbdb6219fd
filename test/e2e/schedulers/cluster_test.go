//go:build e2e

package schedulers

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = testbed.Namespace
	nodeCPUs  = 4   // of every node
	percent   = 120 // of what the nodes offer is asked for
	quiet     = 1500 * time.Millisecond
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// race has the demand of a race created.
func race(c *testbed.Cluster, demand clusterload.RaceOptions, rename func(name string) string) {
	c.T.Helper()
	demand.Namespace, demand.Percent = namespace, percent
	pods := clusterload.Race(demand)
	for _, pod := range pods {
		pod.Name = rename(pod.Name)
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
}

// settle waits for the end of a race. No node was ever overcommitted, all that fits is bound, and no gang
// runs in part.
func settle(c *testbed.Cluster) clusterload.Snapshot {
	c.T.Helper()
	limited, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	snapshot, err := c.Watcher.AwaitSettled(limited, quiet)
	require.NoError(c.T, err, "everything that fits is bound")
	whole, half := snapshot.CountGangs()
	bound := map[string]int{}
	for _, pod := range testbed.Bound(c.Pods()) {
		bound[pod.Spec.SchedulerName]++
	}
	c.T.Logf("%d of %d pods bound, by %v; %d gangs whole, %d half, of %d",
		snapshot.Bound, snapshot.Pods, bound, whole, half, len(snapshot.Gangs))
	c.RequireNeverOvercommitted()
	assert.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	assert.NotZero(c.T, snapshot.Pending, "everything fitted: this was no race for capacity")
	assert.NotZero(c.T, whole)
	assert.Zero(c.T, half)
	for _, pod := range c.Pods() {
		assert.Positive(c.T, bound[pod.Spec.SchedulerName], "%s took no part", pod.Spec.SchedulerName)
	}
	return snapshot
}
