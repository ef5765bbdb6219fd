package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// The first slot that is too many beside those before it is refused, with what those leave of the limit, and the
// question leaves no trace.
func TestKeptOverLimit(t *testing.T) {
	l := newLedger(1, 64_000, 1<<40, 110)
	slots := make([]ledger.Slot, 4)
	for k := range slots {
		slots[k] = ledger.Slot{
			Ref:     ledger.SlotRef{Namespace: "ns", Name: "r", Slot: string(rune('a' + k))},
			Request: request(1000, 0), Caller: "c",
		}
	}
	cpu := func(value int64) []resources.Amount { return []resources.Amount{{Column: resources.CPU, Value: value}} }
	l.ObservePod(ledger.PodObservation{Pod: podRef("p"), Node: nodeName(0), Request: request(500, 0), Caller: "c"})
	for name, tc := range map[string]struct {
		kind   ledger.BudgetKind
		limits ledger.Limits
		want   ledger.Reason
		slot   string
		free   int64
	}{
		"use":       {ledger.OfNamespace, ledger.Limits{Use: cpu(3000)}, ledger.QuotaExceeded, "c", 500},
		"by caller": {ledger.OfCaller, ledger.Limits{Use: cpu(2000)}, ledger.CallerLimit, "b", 500},
		"kept":      {ledger.OfNamespace, ledger.Limits{Keep: cpu(3000)}, ledger.ReservedLimit, "d", 0},
		"slots":     {ledger.OfNamespace, ledger.Limits{Slots: new(int64(1))}, ledger.SlotLimit, "b", 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Nil(t, l.KeptOverLimit(slots), "nothing is limited")
			l.SetLimits(tc.kind, map[string]*ledger.Limits{"": &tc.limits})
			defer l.SetLimits(tc.kind, nil)
			before := l.Budgets(tc.kind)
			over := l.KeptOverLimit(slots)
			require.NotNil(t, over)
			assert.Equal(t, tc.want, over.Reason)
			assert.Equal(t, tc.slot, over.Slot.Slot)
			assert.Equal(t, tc.free, over.Free)
			assert.Equal(t, before, l.Budgets(tc.kind))
			require.NoError(t, l.CheckInvariants())
		})
	}
}
