package arbiter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// What the next server keeps for the rest of a gang counts in the budget of who started it, and so do those pods later.
func TestGangThatIsTakenOverIsPaidFor(t *testing.T) {
	gangTest(t, 4, 2, func(w *gangWorld) {
		limits := &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: 4000}}}
		w.ledger.SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"bob": limits})
		pods := w.gang("a", 4, 4, nil)
		require.NoError(t, w.bind(pods[0].WithCaller("bob"), "n0"))
		bound := *pods[0]
		bound.Node, bound.Caller = "n0", "bob"
		w.o.Pods.Put(&bound)
		w.forget(w.of[bound.Gang.Key("ns")]) // with the server
		require.Zero(t, w.kept())
		require.Equal(t, 1, w.takeOver())
		for k, node := range []string{"n0", "n1", "n1"} {
			require.NoError(t, w.bind(pods[k+1].WithCaller("bob"), node))
		}
		w.refusedAs(w.bind(w.pod("", "single", 0, withoutGang).WithCaller("bob"), "n2"), ledger.CallerLimit)
	})
}
