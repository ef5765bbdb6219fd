//go:build soak

package flood

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// shared is the control plane of all tests. Its API server does little at a time, so that few tenants suffice to keep
// it busy.
var shared = controlplane.Shared{
	Prepare: crd.Prepare,
	Options: controlplane.Options{APIServerArgs: []string{"--max-requests-inflight=20", "--max-mutating-requests-inflight=10"}},
}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// quantile is the time that so much of all took no longer than.
func quantile(times []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
