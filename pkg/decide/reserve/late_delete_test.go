package reserve_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// oneDurable is a durable gang that is one object, by a RequestID.
func oneDurable(w *world) *reserve.Request {
	g := aDurableGang(w)
	g.Name, g.RequestID = "", "r1"
	return g
}

// oust makes the Arbiter one of a server that may decide nothing any more, and returns the next server's.
func (w *world) oust() *reserve.Arbiter {
	synctest.Wait()
	w.undecided.Store(ptr.To("another server may decide"))
	w.Store.Heal()
	return w.succeed(w.alwaysDecides)
}

// The next leader has acknowledged what an earlier one has created, so that it must stay. The network may hold back a
// DELETE of the earlier one until then. What was created and not answered for is not deleted.
func TestLateDelete(t *testing.T) {
	late := times(1, storetest.Fate{Err: errReset, Commit: time.Minute})
	givenBack := func(w *world) {
		assert.Empty(w.t, w.reserve(w.Arbiter, oneDurable(w)))
		w.Store.Deletes = slices.Concat(late, times(400, neverThere))
		d, err := w.Unreserve(w.t.Context(), oneDurable(w))
		require.NoError(w.t, err)
		assert.Contains(w.t, d.Error, "could not be changed: try again")
	}
	type testCase struct {
		begin  func(w *world)
		none   bool // is sent
		repeat func(w *world) *reserve.Request
	}
	bubble.Each(t, map[string]testCase{
		"that is never sent": {none: true, begin: func(w *world) {
			w.Store.Creates = append(times(1, lostAnswer), times(400, neverThere)...)
			w.Store.Gets = times(400, neverThere)
			assert.Contains(w.t, w.reserve(w.Arbiter, oneDurable(w)), "unknown: it is not known whether")
		}},
		"of what is given back": {begin: givenBack},
		"and another request finds it": {begin: givenBack, repeat: func(w *world) *reserve.Request {
			g := oneDurable(w)
			g.RequestID, g.Fingerprint = "another", "of another request"
			return g
		}},
	}, func(t *testing.T, tc testCase) {
		w := newWorld(t)
		tc.begin(w)
		synctest.Wait()
		require.Equal(t, tc.none, w.Store.DeleteCount == 0)
		next := w.oust()
		repeat := oneDurable(w)
		if tc.repeat != nil {
			repeat = tc.repeat(w)
		}
		assert.Empty(t, w.reserve(next, repeat))
		<-time.After(time.Minute)
		w.Store.Late.Wait()
		synctest.Wait()
		assert.Len(t, w.written(), 1)
		assert.Len(t, w.slots(), 1)
	})
}

// What an earlier attempt has made is granted only where it says that this one answers for it, so that a DELETE of the
// earlier one that is still under way is refused.
func TestAnsweringForAnEarlierAttempt(t *testing.T) {
	refused := storetest.Fate{Never: true, Err: apierrors.NewForbidden(rsvKind, "r", errors.New("not yours"))}
	gone := storetest.Fate{Never: true, Err: apierrors.NewNotFound(rsvKind, "r")}
	type testCase struct {
		patches []storetest.Fate
		want    string
	}
	bubble.Each(t, map[string]testCase{
		"written":     {},
		"answer lost": {patches: times(1, lostAnswer)},
		"refused":     {times(1, refused), "could not be read or changed: "},
		"gone":        {times(1, gone), "is ending: try again"},
		"never known": {times(100, neverThere), "unknown: "},
	}, func(t *testing.T, tc testCase) {
		w := newWorld(t)
		assert.Empty(t, w.reserve(w.Arbiter, oneDurable(w)))
		next := w.oust()
		w.Store.Patches = tc.patches
		why := w.reserve(next, oneDurable(w))
		assert.Equal(t, tc.want == "", why == "", why)
		assert.Contains(t, why, tc.want)
		assert.Len(t, w.written(), 1)
		if tc.want == "" {
			assert.Contains(t, w.Store.All()[0].Annotations, "globalreserve.io/answered")
		}
	})
}

// A creation is carried out long after the answer that its fate is not known. A repeat is granted what it made.
func TestLateCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Creates = append([]storetest.Fate{{Err: errReset, Commit: 12 * time.Second}}, times(400, neverThere)...)
		w.Store.Gets = times(15, neverThere)
		assert.Contains(t, w.reserve(w.Arbiter, oneDurable(w)), "unknown: it is not known whether")
		w.Store.Heal()
		w.Store.Late.Wait()
		assert.Empty(t, w.reserve(w.Arbiter, oneDurable(w)))
		<-time.After(5 * time.Minute)
		synctest.Wait()
		assert.Len(t, w.written(), 1)
		assert.Len(t, w.slots(), 1)
	})
}

// An object of this request's own lost creation was made just now, whatever the API server's clock says.
func TestLostCreateByAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Creates, w.Store.Behind = times(1, lostAnswer), 24*time.Hour
		assert.Empty(t, w.reserve(w.Arbiter, oneDurable(w)))
		assert.Len(t, w.slots(), 1)
	})
}

// The watch may bring what a lost creation has made, and that it is gone, before the creation is sent again.
func TestCapacityThatEndsWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Creates, w.Store.Gets = times(1, lostAnswer), times(1, neverThere)
		time.AfterFunc(time.Millisecond, func() {
			assert.NoError(t, w.Store.Store(t).Delete(t.Context(), w.Store.All()[0]))
			w.Ledger.ReleaseSlots("ns", "job")
		})
		assert.Contains(t, w.reserve(w.Arbiter, aDurableGang(w)), "unknown: capacity of reservation ns/job has ended")
	})
}

// An object of the name is there, and cannot be read: it may be that of an earlier try.
func TestUnreadableObjectOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.Empty(t, w.reserve(w.Arbiter, oneDurable(w)))
		w.Ledger.ReleaseSlots("ns", w.Store.All()[0].Name)
		w.Store.Gets = times(400, neverThere)
		assert.Contains(t, w.reserve(w.Arbiter, oneDurable(w)), "unknown: it is not known whether")
	})
}

// An object that was changed since it was read is looked at again before it is deleted, and the capacity stays as
// long as the object is there.
func TestChangedObjectIsReadAgain(t *testing.T) {
	cases := map[string]map[string]string{"its status": nil, "its labels": {}}
	bubble.Each(t, cases, func(t *testing.T, labels map[string]string) {
		w := newWorld(t)
		assert.Empty(t, w.reserve(w.Arbiter, oneDurable(w)))
		object := w.Store.All()[0]
		key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
		w.Store.Deletes = []storetest.Fate{{Delay: time.Second}}
		time.AfterFunc(500*time.Millisecond, func() { w.Store.Change(key, labels) })
		d, err := w.Unreserve(t.Context(), oneDurable(w))
		require.NoError(t, err)
		if labels == nil {
			assert.Empty(t, d.Error)
			assert.Empty(t, w.written())
			assert.Empty(t, w.slots())
			return
		}
		assert.Contains(t, d.Error, "was not made by /reserve")
		assert.Len(t, w.written(), 1)
		assert.Len(t, w.slots(), 1)
	})
}

// Pods of a gang of which one is bound meanwhile are given back, and no others.
func TestUnreserveWhileAPodIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q, r := newPod("p"), newPod("q"), newPod("r")
		w := newWorld(t, p, q, r)
		g := onA("for-scheduler", p, q, r)
		g.Name, g.Durable = "job", true
		assert.Empty(t, w.reserve(w.Arbiter, g))
		w.Store.Gets = []storetest.Fate{{Delay: time.Second}}
		time.AfterFunc(500*time.Millisecond, func() {
			_, refused := w.Ledger.StartBind(&ledger.Placement{Pod: ref(p), Node: "a", Request: w.info(p).Request}, time.Now())
			assert.Nil(t, refused)
			w.Ledger.Confirm(ref(p), "a")
		})
		_, err := w.Unreserve(as(t.Context(), "for-scheduler"), onA("for-scheduler", p, q))
		require.NoError(t, err)
		assert.Equal(t, []string{"ns/job/r"}, w.slots())
		assert.Len(t, w.written(), 1)
	})
}
