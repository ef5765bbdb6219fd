package ledgertest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// DevicesAgreeWithModel is SlotsAgreeWithModel with pods and slots that claim
// devices of two nodes, which have few.
func DevicesAgreeWithModel(t *testing.T, check Check) {
	met := map[ledger.Reason]int{}
	rapid.Check(t, func(t *rapid.T) {
		pair := NewPair(ledger.Options{}, check)
		w := NewWorld(pair.Ledger.Table())
		w.Calm, w.Devices = true, true
		for _, name := range nodeNames[:2] {
			pair.ObserveNode(w.LargeNode(t, name))
			pair.ObserveDevices(name, w.NodeDevices(t))
		}
		reserve := func(t *rapid.T) { pair.Reserve(w.Plan(t), w.Now) }
		start := func(t *rapid.T) { at := w.Placement(t); pair.StartBind(&at, w.Now) }
		ask := func(t *rapid.T) {
			at := w.Placement(t)
			for _, v := range pair.Ledger.AppendFit(nil, &at, nodeNames) {
				met[v.Reason]++
			}
			pair.Ask(&at, append(nodeNames, "nowhere"), w.Victims(t))
		}
		steps := slices.Concat(slotActions(pair, w), slices.Repeat([]func(*rapid.T){
			reserve, start, ask,
			func(t *rapid.T) { settle(t, pair, w, pair.Confirm) },
			func(t *rapid.T) { settle(t, pair, w, pair.BindFailed) },
			func(t *rapid.T) { removeAllocation(t, pair, w) },
			func(t *rapid.T) { redeem(t, pair, w) },
			func(t *rapid.T) { renew(t, pair, w) },
			func(t *rapid.T) { observeAllocation(t, pair, w) },
		}, 2), []func(*rapid.T){
			func(t *rapid.T) { pair.ObservePod(w.PodObservation(t, pair.Ledger)) },
			func(t *rapid.T) { pair.ObserveDevices(w.Node(t), w.NodeDevices(t)) },
			func(t *rapid.T) { pair.Unreserve(forgetful(t, w.Placements(t))) },
			func(t *rapid.T) { pair.ObserveNode(w.LargeNode(t, oneOf(t, "node", nodeNames[:2]))) },
			func(t *rapid.T) {
				if pick(t, "rare", 8) == 7 {
					pair.RemoveNode(w.Node(t))
				}
			},
		})
		t.Repeat(map[string]func(*rapid.T){
			"":     func(t *rapid.T) { require.NoError(t, pair.Check()) },
			"step": func(t *rapid.T) { oneOf(t, "step", steps)(t) },
		})
	})
	for _, r := range []ledger.Reason{ledger.InsufficientDevices, ledger.DeviceClaimInUse, ledger.DeviceClaimUnusable, ledger.Fits} {
		require.NotZero(t, met[r], "no question was answered with %s: %v", r, met)
	}
	t.Logf("answers: %v", met)
}
