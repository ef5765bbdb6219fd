package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What is kept for a nominated pod is what would be free, and not what others have been granted: a slot, or what a pod
// has already; and not what they ask nothing of. Beyond that they do not grow.
func TestNominatedTakesNothing(t *testing.T) {
	of := func(pod string, cpu int64, priority int32) *ledger.Placement {
		return &ledger.Placement{
			Pod: podRef(pod), Node: "node-0", Request: request(cpu, 0), Priority: priority,
		}
	}
	slot := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}
	for name, test := range map[string]func(t *testing.T, l *ledger.Ledger, nominate func()){
		"the slot of a reservation": func(t *testing.T, l *ledger.Ledger, nominate func()) {
			require.Equal(t, 1, l.Reserve(ledger.Plan{Slots: []ledger.Slot{{
				Ref: slot, Node: "node-0", Request: request(2, 0), Policy: ledger.Once,
			}}}, start).Granted)
			nominate()
			user := of("user", 2, 0)
			user.Slots = []ledger.SlotRef{slot}
			grant, rejection := l.StartBind(user, start)
			assert.Nil(t, rejection)
			assert.Equal(t, slot, grant.Slot)
		},
		"a slot in memory": func(t *testing.T, l *ledger.Ledger, nominate func()) {
			kept := of("kept", 2, 0)
			require.Equal(t, 1, l.Reserve(ledger.NewPlan([]ledger.Placement{*kept}, ledger.AllOrNothing, time.Time{}),
				start).Granted)
			nominate()
			l.RemovePod(podRef("victim"), 2)
			_, rejection := l.StartBind(of("kept", 5, 0), start)
			assert.NotNil(t, rejection, "for more")
			_, rejection = l.StartBind(kept, start)
			assert.Nil(t, rejection)
		},
		"a bind in flight": func(t *testing.T, l *ledger.Ledger, nominate func()) {
			_, rejection := l.StartBind(of("binding", 2, 0), start)
			require.Nil(t, rejection)
			nominate()
			l.RemovePod(podRef("victim"), 2)
			_, rejection = l.ChangeBind(of("binding", 5, 0), start)
			assert.NotNil(t, rejection, "for more")
			_, rejection = l.ChangeBind(of("binding", 2, 0), start)
			assert.Nil(t, rejection)
		},
		"nothing": func(t *testing.T, l *ledger.Ledger, nominate func()) {
			nominate()
			_, rejection := l.StartBind(of("modest", 0, 0), start)
			assert.Nil(t, rejection)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1, 10, 100, 110)
			_, rejection := l.StartBind(of("victim", 8, 0), start)
			require.Nil(t, rejection)
			require.True(t, l.Confirm(podRef("victim"), "node-0"))
			test(t, l, func() { require.True(t, l.Nominate(of("p", 6, 100), start.Add(time.Minute))) })
		})
	}
}
