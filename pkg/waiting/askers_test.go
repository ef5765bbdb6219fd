package waiting

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAskedBy(t *testing.T) {
	w := &Pods{}
	_, asks := w.AskedBy("s")
	assert.False(t, asks)
	w.Asks("s", "")
	caller, asks := w.AskedBy("s")
	assert.True(t, asks, "by nobody who has a name")
	assert.Empty(t, caller)
	for i := range 2 * maxAskers {
		w.Asks(fmt.Sprint("made-up-", i), "somebody")
	}
	assert.Len(t, w.askers.byName, maxAskers)
	w.Asks("s", "second")
	caller, _ = w.AskedBy("s")
	assert.Equal(t, "second", caller, "the last counts, also when no more schedulers are remembered")
}
