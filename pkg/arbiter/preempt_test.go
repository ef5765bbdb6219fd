package arbiter

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// A scheduler cannot name as a victim what another one is binding. A node is left to a preemptor where only pods of a
// lower priority are missing from its victims.
func TestPreemptBesideBindsInFlight(t *testing.T) {
	for name, tt := range map[string]struct {
		priority int32
		fits     bool
	}{"of a lower priority": {0, true}, "of the same priority": {10, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, victim, binding := sized("p", "4", 1), sized("victim", "2", 1), sized("binding", "2", 1)
				p.Spec.Priority, binding.Spec.Priority = new(int32(10)), &tt.priority
				victim.Spec.NodeName = "a"
				w := newWorld(t, p, victim, binding)
				w.observe(victim)
				placement := w.o.Question.For(w.info(binding), "a")
				_, rejection := w.o.Ledger.StartBind(&placement)
				require.NoError(t, rejection)
				_, fits, err := w.Preempt(t.Context(), w.query(p, 1, nil), map[string][]types.UID{"a": {victim.UID}})
				require.NoError(t, err)
				assert.Equal(t, map[string]bool{"a": tt.fits}, fits)
				assert.Equal(t, "Binding on a", w.on(ref(binding)))
			})
		})
	}
}
