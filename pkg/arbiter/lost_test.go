package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// A server that does not decide any more sends no Binding again, whatever became of the last one: without the fence the
// next leader waits for one request only.
func TestNoBindingIsRepeatedAfterTheLease(t *testing.T) {
	type testCase struct {
		answer  error
		outcome gates.Outcome
	}
	bubble.Each(t, map[string]testCase{
		"none may be under way": {apierrors.NewTooManyRequests("later", 1), gates.NotReady},
		"one may be under way":  {errReset, gates.Unknown},
	}, func(t *testing.T, tc testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = func(n int) reply {
			if n == 2 {
				w.undecided.Store(new("another server may be deciding by now"))
			}
			return reply{err: tc.answer}
		}
		var e *gates.Error
		require.ErrorAs(t, w.bindPod(p, "a"), &e)
		assert.Equal(t, tc.outcome, e.Outcome)
		assert.Equal(t, 3, w.api.posts)
		assert.Equal(t, tc.outcome == gates.Unknown, w.on(ref(p)) == "Binding on a")
		<-time.After(time.Minute)
		assert.Equal(t, 3, w.api.posts)
	})
}
