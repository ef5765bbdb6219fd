package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	failovers = 5
	// look is how often it is asked who has the Lease, and who decides.
	look = 10 * time.Millisecond
)

// BenchmarkFailover kills the server that decides, of two on a cluster with 5,000 nodes and 150,000 bound pods, and
// measures how long the other one takes from holding the Lease to deciding.
func BenchmarkFailover(b *testing.B) {
	c := startCluster(b)
	fill(b, c)
	leads, follows := startNamed(b, c, "one", clusterload.QuickLease...),
		startNamed(b, c, "two", clusterload.QuickLease...)
	for b.Loop() {
		var took []time.Duration
		for range failovers {
			awaitWarm(b, follows)
			took = append(took, failover(b, c, leads, follows))
			say("decides %s after it has the Lease", took[len(took)-1].Round(time.Millisecond))
			requireAllocations(b, follows)
			require.NoError(b, leads.Start(b.Context()))
			leads, follows = follows, leads
		}
		b.ReportMetric(median(took).Seconds(), "s-to-decide")
		b.Logf("SUMMARY %d nodes, %d pods, %d kills: a warm follower decides %.2f s after it has the Lease (median)",
			nodes, memoryPods, failovers, median(took).Seconds())
	}
}

// awaitWarm waits until a server that follows has every pod: it is ready before, as it can pass requests on.
func awaitWarm(b *testing.B, server *clusterload.Server) {
	b.Helper()
	caller := testbed.Caller{URL: server.URL}
	require.NoError(b, wait.PollUntilContextTimeout(b.Context(), time.Second, runTimeout, true,
		func(ctx context.Context) (bool, error) {
			bound, err := caller.Metric(ctx, "globalreserve_allocations", "state", "Bound")
			return bound == memoryPods, err
		}))
}

// failover kills a server, and returns how long the other one takes from holding the Lease to deciding.
func failover(b *testing.B, c *controlplane.ControlPlane, leads, follows *clusterload.Server) time.Duration {
	b.Helper()
	before := holder(b.Context(), c)
	require.NotEmpty(b, before)
	require.NoError(b, leads.Kill())
	require.NoError(b, wait.PollUntilContextTimeout(b.Context(), look, runTimeout, true,
		func(ctx context.Context) (bool, error) {
			now := holder(ctx, c)
			return now != "" && now != before, nil
		}))
	held := time.Now()
	caller := testbed.Caller{URL: follows.URL}
	require.NoError(b, wait.PollUntilContextTimeout(b.Context(), look, runTimeout, true,
		func(ctx context.Context) (bool, error) {
			leader, err := caller.Metric(ctx, "globalreserve_leader")
			return leader == 1, err
		}))
	return time.Since(held)
}

// holder returns who has the Lease.
func holder(ctx context.Context, c *controlplane.ControlPlane) string {
	lease, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).
		Get(ctx, election.LeaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
