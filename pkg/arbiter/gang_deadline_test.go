package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Binds of members that are allowed, and fail, again and again, have the capacity of the rest kept less and less.
func TestGangWhoseBindsFail(t *testing.T) {
	for name, tt := range map[string]struct {
		bound    int
		overlaps bool          // another member is tried before a bind has failed
		pause    time.Duration // between binds
	}{
		"none is bound":               {0, false, 57 * time.Second},
		"one is bound":                {1, false, 57 * time.Second},
		"none is bound, at once":      {0, false, time.Second},
		"one is bound, at once":       {1, false, time.Second},
		"none is bound, overlapping":  {0, true, 0},
		"one is bound, without pause": {1, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			gangTest(t, 1, 4, func(w *gangWorld) {
				pods := w.gang("a", 4, 4, nil)
				for _, pod := range pods[:tt.bound] {
					require.NoError(t, w.bind(pod, "n0"))
				}
				began, held, allowed := time.Now(), 0, 0
				pass := func(d time.Duration) {
					for range d / time.Second {
						w.pass(time.Second)
						if w.kept() > 0 {
							held++
						}
					}
				}
				var failing []ledger.PodRef
				for k := 0; time.Since(began) < time.Hour; k++ {
					pod := pods[tt.bound+k%(4-tt.bound)]
					p := w.o.Question.For(pod, "n0")
					if _, err := w.startBind(pod, &p, nowhere); err == nil {
						failing = append(failing, pod.Ref)
						allowed++
					}
					pass(3 * time.Second)
					if len(failing) > 0 && (!tt.overlaps || len(failing) > 1) {
						w.bindFailed(failing[0], "n0")
						failing = failing[1:]
					}
					pass(tt.pause)
				}
				assert.Less(t, held, 1200, "of 3600 seconds")
				assert.Greater(t, allowed, 10)
				assert.LessOrEqual(t, len(w.short()), 10)
			})
		})
	}
}

// The rest of a gang is kept also where its first bind fails while others are under way.
func TestGangWhoseFirstBindFails(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		for _, pod := range pods[:2] {
			p := w.o.Question.For(pod, "n0")
			_, err := w.startBind(pod, &p, nowhere)
			require.NoError(t, err)
		}
		w.pass(2 * time.Second)
		require.True(t, w.bindFailed(pods[0].Ref, "n0"))
		w.pass(2 * time.Second)
		require.Equal(t, 3, w.kept())
		require.True(t, w.o.Ledger.Confirm(pods[1].Ref, "n0"))
		w.pass(50 * time.Second)
		assert.Equal(t, 3, w.kept())
	})
}

// A gang that is short, and whose next member is bound, is kept the rest for as long as one that has just started.
func TestGangThatIsShortGoesOn(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		require.NoError(t, w.bind(pods[0], "n0"))
		w.pass(100 * time.Second)
		require.Len(t, w.short(), 1)
		w.reserveUntil(pods[3], "n0", "alice", w.o.Ledger.Clock.Now().Add(30*time.Second))
		require.NoError(t, w.bind(pods[1], "n0"))
		w.pass(80 * time.Second)
		assert.Equal(t, 2, w.kept(), "what was reserved for one of them, too")
		w.pass(20 * time.Second)
		assert.Zero(t, w.kept())
		assert.Len(t, w.short(), 2)
	})
}

// A gang that is short goes on also where one of its members is made anew at the same time, so that as many are bound
// as before.
func TestGangThatIsShortGoesOnWithAnotherMember(t *testing.T) {
	gangTest(t, 1, 5, func(w *gangWorld) {
		pods := w.gang("a", 5, 5, nil)
		require.NoError(t, w.bind(pods[0], "n0"))
		w.pass(100 * time.Second)
		require.Zero(t, w.kept())
		w.ledger.RemovePod(pods[0].Ref, 9)
		w.o.Pods.Remove(pods[0])
		w.pod("a", "anew", 5, nil)
		require.NoError(t, w.bind(pods[1], "n0"))
		w.pass(10 * time.Second)
		bound := *pods[1]
		bound.Node, bound.Finished = "n0", true
		w.o.Pods.Put(&bound)
		w.ledger.RemovePod(bound.Ref, 9)
		w.pass(10 * time.Second)
		assert.Equal(t, 4, w.kept())
	})
}

// A member is bound just in time, and is seen bound later.
func TestGangMemberIsBoundAtTheDeadline(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		require.NoError(t, w.bind(pods[0], "n0"))
		w.watch()
		<-time.After(w.longest() - time.Second)
		p := w.o.Question.For(pods[1], "n0")
		_, err := w.startBind(pods[1], &p, nowhere)
		require.NoError(t, err)
		<-time.After(2 * time.Second)
		require.True(t, w.o.Ledger.Confirm(pods[1].Ref, "n0"))
		w.pass(50 * time.Second)
		assert.Equal(t, 2, w.kept())
	})
}
