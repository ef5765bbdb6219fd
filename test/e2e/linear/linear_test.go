//go:build chaos

package linear

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "what chooses requests and faults; 0: another one each time")
	histories = flag.Int("histories", 220, "how many histories there are in one round")
	duration  = flag.Duration("duration", 0, "for how long further rounds are begun, each with the next seed")
)

var (
	shared       = controlplane.Shared{Prepare: crd.Prepare}
	nodeTemplate = controlplane.NodeTemplate{}
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(controlplane.Run(m, &shared))
}

// atOnce is how many histories are under way at one time, so that each fault hits several.
const atOnce = 30

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1e9) + 1
}

// Three servers, which are killed, stopped and cut off again and again, answer like one.
func TestLinearizable(t *testing.T) {
	for next, began := seed(), time.Now(); ; next++ {
		passed := t.Run(fmt.Sprint("seed=", next), func(t *testing.T) { testRound(t, next) })
		if !passed || time.Since(began) >= *duration {
			return
		}
	}
}

func testRound(t *testing.T, seed uint64) {
	f := newFleet(t, shared.StartT(t), longestThought)
	f.startReplicas(true)
	f.awaitLeader()
	stop, faults := f.haunt(seed)
	played := play(t, f, seed, 0, *histories, atOnce)
	stop()
	sum := judge(played)
	t.Logf("%d histories, %v, %d not judged in time; %d leaders, faults %v", sum.done, sum.counts, sum.undecided,
		len(faults.terms), faults.counts)
	for _, text := range sum.illegal {
		t.Errorf("no order explains the answers of\n%s", text)
	}
	assert.LessOrEqual(t, sum.undecided, mostUndecided(len(played)), "histories that are too long to judge")
	for _, what := range []string{
		"reserve granted", "reserve refused", "unreserve granted", "bind granted",
		"bind refused",
	} {
		assert.Greater(t, sum.counts[what], sum.done/10, "%s: too few to prove anything", what)
	}
	assert.Positive(t, sum.counts["reserve open"]+sum.counts["bind open"], "no request was ever left in doubt")
	assert.Greater(t, len(faults.terms), 2, "the server that decides was hardly ever another one")
	f.RequireNeverOvercommitted()
}

// The test notices servers that are not kept apart: without an election, without terms, which tell a server of the next
// one, and without the fence, which would refuse what all but one write, each of the three decides.
func TestGateOff(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	bindings := cp.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	require.NoError(t, bindings.Delete(t.Context(), election.FenceName, metav1.DeleteOptions{}))
	removeTerms(t, cp)
	f := newFleet(t, cp, 5*time.Millisecond)
	f.startReplicas(false)
	require.Eventually(t, func() bool { return len(f.leaders()) == replicas }, testbed.Soon, testbed.Poll)
	t.Setenv("TMPDIR", t.TempDir()) // nobody wants to see these histories drawn
	const most, few = 100, 4
	s, first, sum := seed(), 0, &tally{}
	for ; first < most && len(sum.illegal) == 0; first += few {
		sum = judge(play(t, f, s, first, few, few))
	}
	require.NotEmpty(t, sum.illegal, "seed %d", s)
	t.Logf("found in the first %d histories:\n%s", first, sum.illegal[0])
}

// removeTerms removes the definition of LedgerTerms, and returns when the API server has forgotten it.
func removeTerms(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	definitions := schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions",
	}
	require.NoError(t, client.Resource(definitions).Delete(t.Context(), "ledgerterms.globalreserve.io",
		metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		list, err := cp.Client().Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
		return err == nil && !slices.ContainsFunc(list.APIResources,
			func(r metav1.APIResource) bool { return r.Name == "ledgerterms" })
	}, testbed.Soon, testbed.Poll)
}
