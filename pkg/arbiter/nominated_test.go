package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestNominatedNodeGetsAMoment has pods evicted from a node for the pod that is nominated there:
// its scheduler has seen them go, and our watch has not yet.
func TestNominatedNodeGetsAMoment(t *testing.T) {
	type testCase struct {
		nominated string
		gone      time.Duration // when the watch tells; 0: never
		want      ledger.Reason
		within    time.Duration
	}
	tests := map[string]testCase{
		"the watch tells at once":     {"a", 5 * time.Millisecond, ledger.Fits, 5 * time.Millisecond},
		"the watch is far behind":     {"a", time.Minute, ledger.InsufficientResource, maxLag},
		"nobody goes":                 {"a", 0, ledger.InsufficientResource, maxLag},
		"nominated elsewhere":         {"b", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for no node":       {"", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for one not asked": {"c", 5 * time.Millisecond, ledger.InsufficientResource, 0},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		p, victim := newPod("p"), sized("victim", "4", 1) // all of node a
		victim.Spec.NodeName = "a"
		w := newWorld(t, p, victim)
		w.observe(victim)
		if tt.gone > 0 {
			time.AfterFunc(tt.gone, func() { w.ledger.RemovePod(ref(victim), 0) })
		}
		start := time.Now()
		q := &PodQuery{Ref: ref(p), Nominated: tt.nominated}
		advice, err := w.Filter(t.Context(), q, []string{"a", "b"}, &Scratch{})
		require.NoError(t, err)
		assert.Equal(t, tt.want, advice.Verdicts[0].Reason)
		assert.Equal(t, ledger.Fits, advice.Verdicts[1].Reason)
		assert.Equal(t, tt.within, time.Since(start))
		pass(time.Minute)
	})
}
