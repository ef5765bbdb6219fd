package waiting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What keeps capacity that evictions do not give a pod ends: the pod is tried again, by a nomination that is taken back
// at once. Where evictions would not help yet, or it is nominated for a node, that is left alone.
func TestAwaitEvictions(t *testing.T) {
	for name, tt := range map[string]struct {
		cpu, nominated string
		priority       int32
		written        []string
	}{
		"evictions help now":       {"4", "", 10, []string{"p -> none.globalreserve.io", "p -x none.globalreserve.io"}},
		"pods of no lower one":     {"4", "", 0, nil},
		"too large for the node":   {"5", "", 10, nil},
		"its scheduler is at it":   {"4", "b", 10, nil},
		"it was not cleared again": {"4", noNode, 10, []string{"p -> none.globalreserve.io", "p -x none.globalreserve.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				low, holder, p := w.pod("low", "2", 0), w.pod("holder", "2", 0), w.pod("p", tt.cpu, tt.priority)
				other := w.pod("other", "4", 0)
				w.observeBound(low, "a")
				w.observeBound(other, "b")
				w.reserve(holder, "a", time.Hour)
				p.Nominated = tt.nominated
				w.put(p)
				w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
				advance(time.Minute)
				require.Empty(t, w.api.names())
				w.unreserve(holder, "a")
				advance(time.Minute)
				assert.Equal(t, tt.written, w.api.written())
			})
		})
	}
}

// What was kept for a nominated pod is free when that goes.
func TestLapsedNominationWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		low, p, waits := w.pod("low", "2", 0), w.pod("p", "4", 10), w.pod("waits", "1", 0)
		w.observeBound(low, "a")
		nominated := p.Placement("a")
		require.True(t, w.ledger.Nominate(&nominated, time.Now().Add(time.Hour)))
		w.put(waits)
		w.refuse(waits, "a")
		advance(time.Minute)
		require.Empty(t, w.api.names())
		w.ledger.RemovePod(ledger.PodRef{Namespace: p.Ref.Namespace, Name: p.Ref.Name, UID: p.Ref.UID}, 2)
		advance(time.Minute)
		assert.Equal(t, []string{"waits"}, w.api.names())
	})
}
