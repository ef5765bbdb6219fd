package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Of two gangs that do not fit together one starts, whole; the one that waits comes first when the next could start.
func TestGangsDoNotBlockEachOther(t *testing.T) {
	gangTest(t, 5, 2, func(w *gangWorld) {
		a, b, c := w.gang("a", 6, 6, nil), w.gang("b", 6, 6, nil), w.gang("c", 6, 6, nil)
		require.NoError(t, w.bind(a[0], "n0"))
		w.refusedAs(w.bind(b[0], "n4"), ledger.GangUnplaced)
		for k := 1; k < 6; k++ {
			require.NoError(t, w.bind(a[k], fmt.Sprintf("n%d", k/2)))
			w.refusedAs(w.bind(b[k], "n4"), ledger.GangUnplaced)
		}
		assert.Zero(t, w.kept())
		w.finish(a)
		err := w.bind(c[0], "n0")
		w.refusedAs(err, ledger.GangWaits)
		assert.ErrorContains(t, err, "ns/b")
		require.NoError(t, w.bind(b[0], "n0"))
		w.refusedAs(w.bind(c[0], "n4"), ledger.GangUnplaced)
	})
	gangTest(t, 5, 2, func(w *gangWorld) {
		b, c := w.gang("b", 11, 11, nil), w.gang("c", 6, 6, nil)
		w.refusedAs(w.bind(b[0], "n0"), ledger.GangUnplaced)
		require.NoError(t, w.bind(c[0], "n0"), "a gang that could not start now holds up nobody")
	})
	gangTest(t, 5, 2, func(w *gangWorld) {
		filler := w.gang("f", 6, 6, nil)
		require.NoError(t, w.bind(filler[0], "n0"))
		b, c := w.gang("b", 6, 6, nil), w.gang("c", 6, 6, nil)
		w.refusedAs(w.bind(b[0], "n4"), ledger.GangUnplaced)
		w.finish(filler)
		<-time.After(patience - time.Second)
		w.refusedAs(w.bind(c[0], "n0"), ledger.GangWaits)
		<-time.After(2 * time.Second)
		require.NoError(t, w.bind(c[0], "n0"), "a scheduler that does not try any more holds up nobody")
	})
}

// A gang that filter has let pass is bound, also where one that has waited for longer could start meanwhile: a
// scheduler that has placed all of a gang may be left with a part of it.
func TestGangThatFilterLetPass(t *testing.T) {
	older := func(w *gangWorld) (complete func()) {
		b := w.gang("b", 5, 6, nil)
		require.Equal(w.t, ledger.GangIncomplete, w.advise(b[0]))
		<-time.After(time.Second)
		return func() { w.pod("b", "b-5", 6, nil) }
	}
	gangTest(t, 5, 2, func(w *gangWorld) {
		complete, c := older(w), w.gang("c", 6, 6, nil)
		for _, pod := range c {
			require.Equal(t, ledger.Fits, w.advise(pod))
		}
		complete()
		w.watch()
		require.NoError(t, w.bind(c[0], "n0"))
		assert.Equal(t, 5, w.kept())
	})
	gangTest(t, 5, 2, func(w *gangWorld) {
		complete, c := older(w), w.gang("c", 6, 6, nil)
		require.Equal(t, ledger.Fits, w.advise(c[0]))
		complete()
		<-time.After(passLife)
		w.refusedAs(w.bind(c[0], "n0"), ledger.GangWaits)
	})
	gangTest(t, 5, 2, func(w *gangWorld) {
		complete, c := older(w), w.gang("c", 6, 6, nil)
		require.Equal(t, ledger.Fits, w.advise(c[0]))
		fillers := w.gang("", 3, 0, func(p *v1.Pod) {
			withoutGang(p)
			ofCPUs(2)(p)
		})
		for k, pod := range fillers {
			require.NoError(t, w.bind(pod, fmt.Sprint("n", k)))
		}
		w.refusedAs(w.bind(c[0], "n4"), ledger.GangUnplaced)
		w.finish(fillers)
		complete()
		w.refusedAs(w.bind(c[0], "n4"), ledger.GangWaits)
	})
}

// A gang that would fit, and that another one comes before, is refused when it is placed, and woken until the other one
// has had its turn, whatever is freed.
func TestGangBehindAnother(t *testing.T) {
	gangTest(t, 5, 2, func(w *gangWorld) {
		filler, b, c := w.gang("f", 6, 6, nil), w.gang("b", 6, 6, nil), w.gang("c", 6, 6, nil)
		require.NoError(t, w.bind(filler[0], "n0"))
		w.refusedAs(w.bind(b[0], "n4"), ledger.GangUnplaced)
		w.finish(filler)
		for _, pod := range c {
			require.Equal(t, ledger.GangWaits, w.advise(pod))
		}
		require.Contains(t, w.told()[len(w.told())-1], "ns/b could start now and comes first")
		began := w.ledger.Revision()
		for w.advise(c[0]) != ledger.Fits {
			w.hosted.Forget()
			for len(w.woken()) == 0 {
				<-time.After(time.Second)
				w.watch()
				_ = w.bind(b[0], "no such node") // its scheduler goes on trying
			}
		}
		assert.Equal(t, began, w.ledger.Revision(), "nothing was freed")
		require.NoError(t, w.bind(c[0], "n0"))
	})
}

// Binds of members that are allowed, and fail, again and again, have the capacity of the rest kept less and less.
func TestGangWhoseBindsFail(t *testing.T) {
	type testCase struct {
		bound    int
		overlaps bool          // another member is tried before a bind has failed
		pause    time.Duration // between binds
	}
	eachGang(t, 1, 4, map[string]testCase{
		"none is bound":               {0, false, 57 * time.Second},
		"one is bound":                {1, false, 57 * time.Second},
		"none is bound, at once":      {0, false, time.Second},
		"one is bound, at once":       {1, false, time.Second},
		"none is bound, overlapping":  {0, true, 0},
		"one is bound, without pause": {1, true, 0},
	}, func(t *testing.T, w *gangWorld, tt testCase) {
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
}

// The rest of a gang is kept also where its first bind fails while others are under way.
func TestGangWhoseFirstBindFails(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		for _, pod := range pods[:2] {
			w.begin(pod, "n0")
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
		pods := w.starting(4, 4, nil)
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
		pods := w.starting(5, 5, nil)
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
		pods := w.starting(4, 4, nil)
		w.watch()
		<-time.After(w.longest() - time.Second)
		w.begin(pods[1], "n0")
		<-time.After(2 * time.Second)
		require.True(t, w.o.Ledger.Confirm(pods[1].Ref, "n0"))
		w.pass(50 * time.Second)
		assert.Equal(t, 2, w.kept())
	})
}
