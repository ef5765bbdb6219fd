//go:build e2e

package gangs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// views is what tells people of gangs.
type views struct {
	testbed.Cluster
}

func newViews(t *testing.T) *views {
	t.Helper()
	v := &views{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	v.AddNodes(2, controlplane.NodeTemplate{})
	// What is kept for the rest of a gang ends soon, and not before all has been looked at. The server leaves the rest to
	// its scheduler.
	policy := testbed.Policy(t, "gangs: {deadline: 15s, redirect: Never}\n")
	v.StartAsked(clusterload.ServerOptions{Args: []string{"--policy-file=" + policy}})
	return v
}

// gang creates a PodGroup and as many pods as it needs, and tries to have the first of them bound until that ends as it
// should.
func (v *views) gang(name string, size int, bound bool) {
	v.T.Helper()
	require.NoError(v.T, v.CreateObject(v.T.Context(), clusterload.PodGroup(v.Namespace, name, size), v.Namespace))
	v.Create(testbed.NewPods(size, name, "by-hand", "1", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{clusterload.PodGroupLabel: name}
	})...)
	nodes, err := v.Ledger.Nodes(v.T.Context())
	require.NoError(v.T, err)
	v.Eventually(func(t *assert.CollectT) {
		err := v.BindDirectly(name+"-0", nodes.Nodes[0].Name)
		if bound {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "more pods of its gang need capacity at once")
		}
	})
}

// of waits until a gang is in a state, and returns it.
func (v *views) of(name, state string) (gang reserver.Gang) {
	v.T.Helper()
	v.Eventually(func(t *assert.CollectT) {
		answer, err := v.Ledger.Gangs(v.T.Context())
		require.NoError(t, err)
		for _, gang = range answer.Gangs {
			if gang.Namespace == v.Namespace && gang.Name == name {
				assert.Equal(t, state, gang.State, "%+v", gang)
				return
			}
		}
		assert.Fail(t, "the gang is not listed")
	})
	return gang
}

// row is what kubectl reserve gangs prints of a gang, up to how long it waits.
func (v *views) row(name string) []string {
	v.T.Helper()
	out, err := v.Shell(v.T.TempDir(), "kubectl-reserve gangs -n "+v.Namespace+" --ledger-url "+v.Documented(),
		testbed.File(v.T, "bin"))
	require.NoError(v.T, err, out)
	for line := range strings.Lines(out) {
		if cells := strings.Fields(line); cells[0] == name {
			return cells[:7]
		}
	}
	require.Fail(v.T, "the gang is not shown", out)
	return nil
}

// A gang of which one pod is bound starts, then is short, and one that does not fit waits: so say the server, kubectl,
// the metrics, and the Events on the pods and on the PodGroup.
func TestGangsAreSeen(t *testing.T) {
	v := newViews(t)
	v.gang("starts", 3, true)
	gang := v.of("starts", "Starting")
	assert.Equal(t, []string{"starts", "scheduler-plugins", "by-hand", "3", "1", "2", "Starting"}, v.row("starts"))
	assert.Equal(t, 1, v.Metric("globalreserve_gangs", "state", "Starting"))
	assert.Equal(t, []int{2, 2, 1}, []int{gang.Pending, gang.Kept, gang.Bound})
	assert.NotZero(t, gang.KeptUntil)

	v.gang("waits", 9, false)
	gang = v.of("waits", "Waiting")
	assert.Contains(t, gang.Why, "8 more pods of its gang need capacity at once")
	assert.NotZero(t, gang.WaitingSince)
	assert.Equal(t, []string{"waits", "scheduler-plugins", "by-hand", "9", "0", "0", "Waiting"}, v.row("waits"))
	assert.Equal(t, 1, v.Metric("globalreserve_gangs", "state", "Waiting"))
	assert.Positive(t, v.Metric("globalreserve_gang_refusals_total", "reason", "GangUnplaced"))
	v.AwaitEvent("Pod", "waits-0", "GangUnplaced", "8 more pods of its gang need capacity at once")
	var explained reserver.ExplainAnswer
	require.NoError(t, v.Ledger.Get(t.Context(), testbed.ExplainPath+"?namespace="+v.Namespace+"&pod=waits-1", &explained))
	assert.Equal(t, gang.Why, explained.Message)

	gang = v.of("starts", "Short")
	assert.Equal(t, []int{2, 0, 1}, []int{gang.Pending, gang.Kept, gang.Bound})
	assert.Equal(t, []string{"starts", "scheduler-plugins", "by-hand", "3", "1", "0", "Short"}, v.row("starts"))
	assert.Equal(t, 1, v.Metric("globalreserve_gangs", "state", "Short"))
	assert.Positive(t, v.Metric("globalreserve_half_gang_seconds_total"))
	const short = "lacks 2 of the 3 pods it needs"
	v.AwaitEvent("PodGroup", "starts", "GangShort", short)
	v.AwaitEvent("Pod", "starts-1", "GangShort", short)
}
