package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestNominatedNodeGetsAMoment has pods evicted from a node for the pod that is nominated there:
// its scheduler has seen them go, and our watch has not yet.
func TestNominatedNodeGetsAMoment(t *testing.T) {
	tests := map[string]struct {
		nominated string
		gone      time.Duration // when the watch tells; 0: never
		want      ledger.Reason
		within    time.Duration
	}{
		"the watch tells at once":     {"a", 5 * time.Millisecond, ledger.Fits, 5 * time.Millisecond},
		"the watch is far behind":     {"a", time.Minute, ledger.InsufficientResource, maxLag},
		"nobody goes":                 {"a", 0, ledger.InsufficientResource, maxLag},
		"nominated elsewhere":         {"b", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for no node":       {"", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for one not asked": {"c", 5 * time.Millisecond, ledger.InsufficientResource, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, victim := newPod("p"), newPod("victim")
				victim.Spec.NodeName = "a"
				w := newWorld(t, p, victim)
				bound := w.info(victim)
				request := *bound.Request
				request.Amounts = append(request.Amounts[:0:0], request.Amounts...)
				request.Amounts[0].Value = 4000 // all of node a
				observation := bound.Observation()
				observation.Request = &request
				w.ledger.ObservePod(observation)
				if tt.gone > 0 {
					time.AfterFunc(tt.gone, func() { w.ledger.RemovePod(bound.Ref, 0) })
				}
				start := time.Now()
				q := &PodQuery{Ref: ref(p), Nominated: tt.nominated}
				advice, err := w.Filter(t.Context(), q, []string{"a", "b"}, &Scratch{})
				require.NoError(t, err)
				assert.Equal(t, tt.want, advice.Verdicts[0].Reason)
				assert.Equal(t, ledger.Fits, advice.Verdicts[1].Reason)
				assert.Equal(t, tt.within, time.Since(start))
				pass(time.Minute)
				w.end()
			})
		})
	}
}
