package gang_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/gang"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

var rsvKind = v1alpha1.Resource("reservations")

// inTwoNamespaces is a gang that cannot be one object.
func inTwoNamespaces(w *world) *gang.Request {
	g := &gang.Request{Scheduler: "scheduler", Mode: ledger.AllOrNothing, Durable: true, Name: "job", Fingerprint: "f"}
	for _, namespace := range []string{"x", "y", "z"} {
		p := newPod("p")
		p.Namespace, p.UID = namespace, types.UID("uid-"+namespace)
		w.bring(p)
		g.Pods = append(g.Pods, gang.Pod{Ref: ref(p), Node: "a"})
	}
	return g
}

var wholeGang = []string{"x/job", "y/job-2", "z/job-3"}

// Whatever becomes of one of the writes, a gang of several objects is there whole, and
// said to be, or nothing is left of it.
func TestWritesOfSeveralObjects(t *testing.T) {
	never := storetest.Fate{Never: true, Err: apierrors.NewForbidden(rsvKind, "r", errors.New("not yours"))}
	late := storetest.Fate{Err: errReset, Commit: 10 * time.Second}
	type testCase struct {
		creates, gets, patches []storetest.Fate
		granted                bool
	}
	bubble.Each(t, map[string]testCase{
		"all written":              {granted: true},
		"an answer lost":           {creates: []storetest.Fate{{}, lostAnswer}, granted: true},
		"the head refused":         {creates: []storetest.Fate{never}},
		"another part refused":     {creates: []storetest.Fate{{}, {}, never}},
		"another part never there": {creates: append([]storetest.Fate{{}}, times(40, neverThere)...)},
		"another part there too late": {
			creates: append([]storetest.Fate{{}, late}, times(40, neverThere)...), gets: times(40, neverThere),
		},
		"the last write refused":       {patches: []storetest.Fate{never}},
		"the last write never there":   {patches: times(40, neverThere)},
		"the last answer lost":         {patches: []storetest.Fate{lostAnswer}, granted: true},
		"the last answers always lost": {patches: times(40, lostAnswer)},
		"a name that is taken": {creates: []storetest.Fate{
			{},
			{Never: true, Err: apierrors.NewAlreadyExists(rsvKind, "r")},
			never,
		}},
	}, func(t *testing.T, tc testCase) {
		w := newWorld(t)
		w.Store.Creates, w.Store.Gets, w.Store.Patches = tc.creates, tc.gets, tc.patches
		d, err := w.Reserve(t.Context(), inTwoNamespaces(w))
		require.NoError(t, err)
		assert.Equal(t, tc.granted, d.Error == "", d.Error)
		if tc.granted {
			assert.Equal(t, wholeGang, w.written())
			assert.Len(t, w.slots(), 3)
			assert.Empty(t, d.Failed)
			for _, object := range w.Store.All() {
				assert.NotContains(t, object.Labels, unfinished)
			}
		} else {
			assert.Len(t, d.Failed, 3)
			w.Store.Heal()
			<-time.After(5 * time.Minute)
			synctest.Wait()
			assert.Empty(t, w.written())
			assert.Empty(t, w.slots())
		}
		w.Store.Late.Wait()
	})
}

// A server that dies while it writes a gang leaves all of it or what the next one
// deletes, and until then nobody is granted it.
func TestServerThatDiesBetweenWrites(t *testing.T) {
	for writes := range 5 { // three objects and the patch
		t.Run(fmt.Sprint("after ", writes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				hang := storetest.Fate{Never: true, Delay: time.Hour, Err: errReset}
				if writes < 3 {
					w.Store.Creates = append(make([]storetest.Fate, writes), hang, hang, hang)
				} else if writes == 3 {
					w.Store.Patches = []storetest.Fate{hang}
				}
				died := make(chan error, 1)
				go func() {
					_, err := w.Reserve(context.Background(), inTwoNamespaces(w))
					died <- err
				}()
				synctest.Wait()
				w.Stop()
				require.NoError(t, <-died)
				w.Store.Heal()
				assert.Len(t, w.written(), min(writes, 3))

				next := w.succeed(nil)
				why := w.reserve(next, inTwoNamespaces(w))
				finished := writes == 0 || writes == 4
				assert.Equal(t, finished, why == "", why)
				next.Start()
				<-time.After(time.Minute)
				synctest.Wait()
				if finished {
					assert.Equal(t, wholeGang, w.written())
				} else {
					assert.Empty(t, w.written())
				}
			})
		})
	}
}

// succeed returns the Arbiter of a server that has read the objects at its start, as
// pkg/reservations does.
func (w *world) succeed(change func(*gang.Options)) *gang.Arbiter {
	views, _ := w.Ledger.Slots()
	for i := range views {
		w.Ledger.ReleaseSlots(views[i].Ref.Namespace, views[i].Ref.Name)
	}
	for _, object := range w.Store.All() {
		kept, err := convert.GrantedSlots(w.Ledger.Table(), object)
		require.NoError(w.t, err)
		for i := range kept {
			w.Ledger.ObserveSlot(kept[i])
		}
	}
	return w.server(change)
}

// Somebody makes objects that look like what is left of a gang, and names the objects of others as its parts. Only
// what names that head in turn is deleted with it, and no mistake in one keeps others from being deleted.
func TestForgedHeadTakesNothingAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		put := func(namespace, name string, labels, annotations map[string]string) {
			w.Store.Objects[types.NamespacedName{
				Namespace: namespace,
				Name:      name,
			}] = &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: labels, Annotations: annotations,
			}}
		}
		left := map[string]string{unfinished: "true"}
		put("others", "by-hand", nil, nil)
		put("others", "job", nil, map[string]string{attempt: "known"})
		put("others", "job-2", nil, map[string]string{attempt: "known", head: "others/job"})
		put("a", "forged", left, map[string]string{parts: "others/by-hand"})
		put("a", "forged-attempt", left, map[string]string{
			parts:   "others/job,others/job-2",
			attempt: "known",
		})
		put("a", "no-parts", left, nil)
		put("a", "no-names", left, map[string]string{parts: "/,x,y/../z,,"})
		put("x", "left", left, map[string]string{parts: "y/left-2", attempt: "1"})
		put("y", "left-2", nil, map[string]string{head: "x/left", attempt: "1"})
		w.Start()
		<-time.After(2 * time.Minute)
		assert.Equal(t, []string{"others/by-hand", "others/job", "others/job-2"}, w.written())
	})
}

// A gang that this server is writing is not taken for one that another left behind.
func TestOwnGangIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Patches = []storetest.Fate{{Delay: 6 * time.Second}}
		w.Start()
		<-time.After(store.Settle - time.Second)
		assert.Empty(t, w.reserve(w.Arbiter, inTwoNamespaces(w)))
		<-time.After(time.Minute)
		assert.Equal(t, wholeGang, w.written())
	})
}

// The API server answers 409 for errors of its storage, too: what it says then may have
// been written.
func TestConflictThatWasWritten(t *testing.T) {
	conflict := apierrors.NewConflict(rsvKind, "job", errors.New("storage"))
	bubble.Each(t, map[string]storetest.Fate{
		"written": {Err: conflict}, "written later": {Err: conflict, Commit: 30 * time.Millisecond},
		"not written": {Never: true, Err: conflict},
	}, func(t *testing.T, fate storetest.Fate) {
		w := newWorld(t)
		w.Store.Creates = []storetest.Fate{fate}
		g := inTwoNamespaces(w)
		g.Pods = g.Pods[:1]
		assert.Empty(t, w.reserve(w.Arbiter, g))
		assert.Equal(t, []string{"x/job"}, w.written())
		assert.Equal(t, []string{"x/job/p"}, w.slots())
		w.Store.Late.Wait()
	})
}

// A pod that is being bound needs no slot, if it is bound in the end. What is acknowledged must not rest on a bind
// whose outcome is not known: the next server knows nothing of it.
func TestReservedWhileBeingBound(t *testing.T) {
	p := newPod("p")
	bubble.Each(t, map[string]bool{"bound": true, "not known": false}, func(t *testing.T, isBound bool) {
		w := newWorld(t, p)
		w.API.Put(p)
		w.api.bind = func(ctx context.Context) error {
			<-ctx.Done()
			if isBound {
				bound := p.DeepCopy()
				bound.Spec.NodeName = "a"
				w.API.Put(bound)
			}
			return ctx.Err()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.single.Bind(identity.Inside(t.Context()), ref(p), "a")
		}()
		synctest.Wait()
		g := onA("", p)
		g.Durable, g.Name = true, "r"
		why := w.reserve(w.Arbiter, g)
		if isBound {
			assert.Empty(t, why)
		} else {
			assert.Contains(t, why, "it is not known yet whether pod")
		}
		assert.Empty(t, w.slots())
		<-done
	})
}

// A server that does not decide any more sends no write again, whatever became of the last one.
func TestNoReservationIsRepeatedAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Creates = times(100, neverThere)
		time.AfterFunc(time.Second, func() { w.undecided.Store(new("another server may be deciding by now")) })
		g := inTwoNamespaces(w)
		begun := time.Now()
		d, err := w.Reserve(t.Context(), g)
		require.NoError(t, err)
		assert.Contains(t, d.Error, "another server may be deciding by now")
		assert.Less(t, time.Since(begun), 3*time.Second)
		before := w.Store.CreateCount
		assert.Greater(t, before, 2)
		<-time.After(time.Minute)
		assert.Equal(t, before, w.Store.CreateCount)
	})
}

// The anti-affinity of a pod is in no object, so it counts in no slot either: the next server would not know it.
func TestWhatNoObjectSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t), newPod("p")
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{}, TopologyKey: v1.LabelHostname,
			}},
		}}
		w.bring(p)
		g := onA("caller", p)
		g.Durable, g.Name = true, "job"
		require.Empty(t, w.reserve(w.Arbiter, g))
		views, _ := w.Ledger.Slots()
		require.Len(t, views, 1)
		assert.Empty(t, views[0].Request.Ports)
	})
}
