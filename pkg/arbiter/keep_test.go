package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeep keeps capacity for a pod as a scheduler in the same process does, and binds it.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, big := newPod("p"), sized("big", "4", 1)
		w := newWorld(t, p, big)
		placement := w.question.Of(w.info(p), "a")
		made, _, err := w.Keep(&placement, time.Minute)
		require.NoError(t, err)
		assert.True(t, made)
		made, _, err = w.Keep(&placement, time.Minute)
		require.NoError(t, err)
		assert.False(t, made, "it has it already")

		huge := w.question.Of(w.info(big), "a")
		_, _, err = w.Keep(&huge, time.Minute)
		assertOutcome(t, Refused, err)
		w.GiveBack(&placement)
		_, _, err = w.Keep(&huge, time.Minute)
		require.NoError(t, err)
		w.GiveBack(&huge)
		require.NoError(t, w.BindKnown(t.Context(), w.info(p), "a"))
	})
}
