package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

// TestKeepAll keeps capacity for all pods of a gang or for none.
func TestKeepAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPod("p"), newPod("q")
		w := newWorld(t, p, q)
		gang := []ledger.Placement{w.question.For(w.info(p), "a"), w.question.For(w.info(q), "nowhere")}
		_, _, err := w.KeepAll(gang, time.Minute)
		assertOutcome(t, gates.Refused, err)
		assert.Equal(t, ledger.NodeUnknown, reasonOf(err))
		made, _, err := w.Keep(&gang[0], time.Minute)
		require.NoError(t, err)
		require.True(t, made, "nothing was kept")
		gang[1].Node = "a"
		all, _, err := w.KeepAll(gang, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true}, all)
		w.undecided.Store(new("the lease may be lost"))
		_, _, err = w.KeepAll(gang, time.Minute)
		assertOutcome(t, gates.NotReady, err)
		w.undecided.Store(nil)
		w.policy.Set(gatestest.Limited("scheduler"))
		gang[1].Caller = "stranger"
		_, _, err = w.KeepAll(gang, time.Minute)
		assertOutcome(t, gates.Refused, err)
		_, _, err = w.Keep(&gang[1], time.Minute)
		assertOutcome(t, gates.Refused, err)
		require.Error(t, w.MayHave(&gang[1]))
		_, asks := w.waiting.AskedBy("scheduler")
		assert.False(t, asks)
		w.policy.Set(gatestest.Limited("scheduler", "stranger"))
		require.NoError(t, w.MayHave(&gang[1]))
		caller, _ := w.waiting.AskedBy("scheduler")
		assert.Equal(t, "stranger", caller)
		list, _ := w.waiting.RefusalsAfter(0)
		require.Len(t, list, 4)
		for _, r := range list[1:] {
			assert.Equal(t, []string{waiting.Plugin, gates.Reason, "q"}, []string{r.Path, r.Reason, r.Rejection.Pod.Name})
		}
		w.policy.Set(policy.Default())
		w.Release(&gang[0])
		w.Release(&gang[1])
	})
}

// What was kept for a pod has ended at its deadline, before anybody looked.
func TestKeepAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPod("p"), newPod("q")
		w := newWorld(t, p, q)
		gang := []ledger.Placement{w.question.For(w.info(p), "a"), w.question.For(w.info(q), "a")}
		_, _, err := w.KeepAll(gang, time.Minute)
		require.NoError(t, err)
		<-time.After(2 * time.Minute)
		made, _, err := w.Keep(&gang[0], time.Minute)
		require.NoError(t, err)
		assert.True(t, made)
		<-time.After(2 * time.Minute)
		all, _, err := w.KeepAll(gang, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []bool{true, true}, all)
		w.Release(&gang[0])
		w.Release(&gang[1])
	})
}

// TestKeep keeps capacity for a pod as a scheduler in the same process does, and binds it.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, big := newPod("p"), sized("big", "4", 1)
		w := newWorld(t, p, big)
		placement := w.question.For(w.info(p), "a")
		made, _, err := w.Keep(&placement, time.Minute)
		require.NoError(t, err)
		assert.True(t, made)
		made, _, err = w.Keep(&placement, time.Minute)
		require.NoError(t, err)
		assert.False(t, made, "it has it already")

		huge := w.question.For(w.info(big), "a")
		_, _, err = w.Keep(&huge, time.Minute)
		assertOutcome(t, gates.Refused, err)
		w.Release(&placement)
		_, _, err = w.Keep(&huge, time.Minute)
		require.NoError(t, err)
		w.Release(&huge)
		require.NoError(t, w.BindKnown(t.Context(), w.info(p), "a"))
	})
}
