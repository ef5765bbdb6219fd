package gates_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// Whatever gives out capacity asks the gates, and what goes on with something that was given out does not.
func TestDecisionsPassTheGates(t *testing.T) {
	l := ledger.New(ledger.Options{})
	placementtest.Nodes(l, 4000, "a")
	store, undecided := policy.NewStore(policy.Default(), time.Minute), ""
	g := gates.NewGatedLedger(l, steady.New(time.Now, steady.Uptime), gates.New(store), func() string { return undecided })
	asked := &ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}, Node: "a", Request: placementtest.Request(1000),
		Scheduler: "batch", Caller: "bob",
	}
	_, err := g.StartBind(asked)
	require.NoError(t, err)
	slot := ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, Node: "a", Request: asked.Request, Scheduler: "batch",
		Caller: "bob",
	}
	rest := &ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: "rest", UID: "v"}, Request: asked.Request, Scheduler: "batch",
		Caller: "bob",
	}
	kept := rest.Slot(time.Now().Add(time.Hour))
	kept.Movable = true
	keep := []ledger.Choice{{Slots: []ledger.Slot{kept}, Nodes: []string{"a"}}}
	decide := map[string]func() error{
		"StartBind":  func() error { _, err := g.StartBind(asked); return err },
		"ChangeBind": func() error { _, err := g.ChangeBind(asked); return err },
		"StartBindWith": func() error {
			other := *asked
			other.Scheduler = "other"
			_, err := g.StartBindWith(&other, &ledger.Exchange{Keep: keep})
			return err
		},
		"Resize":     func() error { _, err := g.Resize(asked, 2, false); return err },
		"Reserve":    func() error { _, err := g.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, false); return err },
		"a trial":    func() error { _, err := g.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, true); return err },
		"RefuseSlot": func() error { return g.RefuseSlot(&slot) },
	}
	for _, rules := range []*policy.Policy{gatestest.Limited("batch"), gatestest.Limited("batch", "bob")} {
		store.Set(rules)
		for name, ask := range decide {
			if err := ask(); rules.Schedulers[0].Lists("bob") {
				assert.NoError(t, err, name)
			} else {
				assert.ErrorContains(t, err, "may not act for scheduler", name)
			}
		}
	}
	store.Set(gatestest.Limited("batch"))
	require.NoError(t, g.Exchange(&ledger.Exchange{Keep: keep}), "the rest of a gang that has started")
	store.Set(policy.Default())
	undecided = "another server decides"
	for name, ask := range decide {
		if err := ask(); name == "RefuseSlot" {
			assert.NoError(t, err, "it promises nothing new")
		} else {
			assert.True(t, gates.IsNotReady(err), name)
		}
	}
}

// What the ledger decides is decided through the gates alone. Only what ends or settles something that was granted is
// the ledger's own method.
func TestNoDecisionIsPromoted(t *testing.T) {
	settles := []string{"Observer", "Confirm", "BindFailed", "BindFailedKeeping", "PutOff", "SettleResize", "Unreserve"}
	var gated []string
	for method := range reflect.TypeFor[*ledger.Ledger]().Methods() {
		_, observes := reflect.TypeFor[ledger.Observer]().MethodByName(method.Name)
		if observes || slices.Contains(settles, method.Name) {
			continue
		}
		own, ok := reflect.TypeFor[*gates.GatedLedger]().MethodByName(method.Name)
		require.True(t, ok)
		assert.NotEqual(t, slices.Collect(method.Type.Ins())[1:], slices.Collect(own.Type.Ins())[1:], method.Name)
		gated = append(gated, method.Name)
	}
	assert.Equal(t, []string{"ChangeBind", "Exchange", "Reserve", "Resize", "StartBind", "StartBindWith"}, gated)
}
