package sim

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard)
	debug.SetGCPercent(400) // a cluster is small, and soon gone
	os.Exit(m.Run())
}

// The gate runs so many seeds, and so many steps of each.
const (
	gateSeeds = 40
	gateSteps = 150
)

// ofSeed is the cluster that belongs to a seed.
func ofSeed(seed, steps int) Options {
	o := Options{
		Seed: uint64(seed), Steps: steps, Servers: 2 + seed/3%2, Nodes: 4, Schedulers: 4,
		Unfenced: seed%4 == 0, Jumps: seed/4%2 == 0, Uncompared: seed%5 < 2, Limited: seed%7 < 3, Pace: 1 + seed%3/2*4,
		LogLevel: "warn",
	}
	if seed%8 == 3 {
		o.Calm, o.Without = true, []string{
			"changeTrouble", "disturbServer", "replaceLeader", "cutPower", "restartAPIServer", "lagAPIServer",
		}
	}
	for what := range strings.FieldsFuncSeq(os.Getenv("WITHOUT"), func(r rune) bool { return r == ',' }) {
		if !slices.Contains(o.Without, what) {
			o.Without = append(o.Without, what)
		}
	}
	return o
}

// happens is what has to happen in the clusters of the gate: where it does not, nothing is found either.
var happens = []string{
	"is stopped", "goes", "is Succeeded", "which is without a node", "too little cpu", "too little memory",
	late, throttled, "grows", "scheduler-0 binds", "scheduler-0 does not bind", "creates reservation",
	"uses default/rsv", `is "Succeeded"`, "durable true", "durable false", "gives back", "is behind by",
	"has devices [GPU", "gives part-", "/deleted-pod", "takes the device of", "creates PodGroup", "sets the policy",
}

// rarely is what happens to less than two of three clusters: by chance it may happen to none of the gate's. It has to
// where manySteps are done.
var rarely = []string{
	answerLost, twice, slow, "device node-", "sets the quota", "than the policy allows", "has PodGroup",
	"is killed", "is paused", "is cut off from the API", "is cut off from the other", "its clock is", "cordoned: true",
	`is "Expired"`, "is restarted", "is compacted", "refuse it: true", "takes from", "of its gang need capacity",
	"deletes PodGroup", "repeats request", "is allocated to ResourceClaim", "deletes the definition", "its ResourceQuota",
	"may not act for",
}

const manySteps = 100_000

// In the cluster of each seed every promise is kept. SEED is the first seed, SEEDS how many, and STEPS how long each
// is.
func TestSeeds(t *testing.T) {
	first, count, steps := number(t, "SEED", 1), number(t, "SEEDS", gateSeeds), number(t, "STEPS", gateSteps)
	var happened sync.Map
	t.Run("seed", func(t *testing.T) {
		for seed := first; seed < first+count; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				o := ofSeed(seed, steps)
				result := run(t, o)
				t.Logf("%d steps, %d pods bound, %s simulated", result.Steps, result.Bound, result.Simulated)
				history := strings.Join(result.History, "\n")
				for _, what := range slices.Concat(happens, rarely) {
					if strings.Contains(history, what) {
						happened.Store(what, true)
					}
				}
				if result.Found != nil || os.Getenv("HISTORY") != "" {
					report(t, o, result)
				}
				if result.Found != nil && os.Getenv("SHRINK") != "" {
					o, result = shrink(t, o, result)
					report(t, o, result)
				}
				require.NoError(t, result.Found, "seed %d, after %d steps: %v", seed, result.Steps,
					result.Found)
			})
		}
	})
	check := func(list []string, enough int) {
		for _, what := range list {
			_, ok := happened.Load(what)
			assert.True(t, ok || count*steps < enough, "%s: it does not happen to any of the clusters", what)
		}
	}
	check(happens, gateSeeds*gateSteps)
	check(rarely, manySteps)
}

// report logs what was found, and writes the history.
func report(t *testing.T, o Options, result *Result) {
	t.Helper()
	if result.Found != nil {
		t.Log(excerpt(result.Found, result.History))
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("globalreserve-sim-%d.txt", o.Seed))
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(result.History, "\n")), 0o600))
	t.Logf("the history is in %s; again: make sim SEED=%d STEPS=%d WITHOUT=%s", file, o.Seed, o.Steps,
		strings.Join(o.Without, ","))
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	said := os.Getenv(name)
	if said == "" {
		return otherwise
	}
	n, err := strconv.Atoi(said)
	require.NoError(t, err, name)
	return n
}

func run(t *testing.T, o Options) (result *Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		result, err = Run(o)
		require.NoError(t, err)
	})
	return result
}
