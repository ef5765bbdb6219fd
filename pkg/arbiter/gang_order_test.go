package arbiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/cluster"
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
		for _, pod := range a {
			w.ledger.RemovePod(pod.Ref, 2)
			w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref, Finished: true, Gang: pod.Gang})
		}
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
		for _, pod := range filler {
			w.ledger.RemovePod(pod.Ref, 2)
			w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref, Finished: true, Gang: pod.Gang})
		}
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
		filler := w.pod("", "filler", 0, func(p *v1.Pod) {
			p.Annotations = nil
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
		})
		others := []*cluster.Pod{filler}
		require.NoError(t, w.bind(filler, "n0"))
		for k := 1; k < 3; k++ {
			other := *filler
			other.Ref.Name, other.Ref.UID = fmt.Sprint("filler-", k), types.UID(fmt.Sprint("u-filler-", k))
			require.NoError(t, w.bind(&other, fmt.Sprintf("n%d", k)))
			others = append(others, &other)
		}
		w.refusedAs(w.bind(c[0], "n4"), ledger.GangUnplaced)
		for _, pod := range others {
			w.ledger.RemovePod(pod.Ref, 2)
		}
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
		for _, pod := range filler {
			w.ledger.RemovePod(pod.Ref, 2)
			w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref, Finished: true, Gang: pod.Gang})
		}
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
