package arbiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

var rsvKind = v1alpha1.Resource("reservations")

// inTwoNamespaces is a gang that cannot be one object.
func inTwoNamespaces(w *world) *Gang {
	g := &Gang{Scheduler: "scheduler", Mode: ledger.AllOrNothing, Durable: true, Name: "job", Fingerprint: "f"}
	for _, namespace := range []string{"x", "y", "z"} {
		p := newPod("p")
		p.Namespace, p.UID = namespace, types.UID("uid-"+namespace)
		w.bring(p)
		g.Pods = append(g.Pods, GangPod{Ref: ref(p), Node: "a"})
	}
	return g
}

func (w *world) slots() []string {
	views, _ := w.ledger.Slots()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String())
	}
	return list
}

func (w *world) written() []string {
	list := []string{}
	for _, object := range w.objects.All() {
		list = append(list, object.Namespace+"/"+object.Name)
	}
	return list
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
	tests := map[string]testCase{
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
	}
	bubble.Each(t, tests, func(t *testing.T, tc testCase) {
		w := newWorld(t)
		w.objects.Creates, w.objects.Gets, w.objects.Patches = tc.creates, tc.gets, tc.patches
		d, err := w.Reserve(t.Context(), inTwoNamespaces(w))
		require.NoError(t, err)
		assert.Equal(t, tc.granted, d.Error == "", d.Error)
		if tc.granted {
			assert.Equal(t, wholeGang, w.written())
			assert.Len(t, w.slots(), 3)
			assert.Empty(t, d.Failed)
			for _, object := range w.objects.All() {
				assert.False(t, isUnfinished(object))
			}
		} else {
			assert.Len(t, d.Failed, 3)
			w.objects.Heal()
			<-time.After(5 * time.Minute)
			synctest.Wait()
			assert.Empty(t, w.written())
			assert.Empty(t, w.slots())
		}
		w.objects.Late.Wait()
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
					w.objects.Creates = append(make([]storetest.Fate, writes), hang, hang, hang)
				} else if writes == 3 {
					w.objects.Patches = []storetest.Fate{hang}
				}
				died := make(chan error, 1)
				go func() {
					_, err := w.Reserve(context.Background(), inTwoNamespaces(w))
					died <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = w.Stop(ctx)
				require.NoError(t, <-died)
				w.objects.Heal()
				assert.Len(t, w.written(), min(writes, 3))

				next := w.succeed()
				d, err := next.Reserve(t.Context(), inTwoNamespaces(w))
				require.NoError(t, err)
				finished := writes == 0 || writes == 4
				assert.Equal(t, finished, d.Error == "", "%s", d.Error)
				next.Start()
				<-time.After(time.Minute)
				synctest.Wait()
				if finished {
					assert.Equal(t, wholeGang, w.written())
				} else {
					assert.Empty(t, w.written())
				}
				require.NoError(t, next.Stop(t.Context()))
			})
		})
	}
}

// succeed returns the Arbiter of a server that has read the objects at its start, as
// pkg/reservations does.
func (w *world) succeed() *Arbiter {
	views, _ := w.ledger.Slots()
	for i := range views {
		w.ledger.ReleaseSlots(views[i].Ref.Namespace, views[i].Ref.Name)
	}
	for _, object := range w.objects.All() {
		kept, err := convert.GrantedSlots(w.ledger.Table(), object)
		require.NoError(w.t, err)
		for i := range kept {
			w.ledger.ObserveSlot(kept[i])
		}
	}
	return w.newArbiter(Options{})
}

// Somebody makes objects that look like what is left of a gang, and names the objects of others as its parts. Only
// what names that head in turn is deleted with it, and no mistake in one keeps others from being deleted.
func TestForgedHeadTakesNothingAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		put := func(namespace, name string, labels, annotations map[string]string) {
			w.objects.Objects[types.NamespacedName{
				Namespace: namespace,
				Name:      name,
			}] = &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: labels, Annotations: annotations,
			}}
		}
		unfinished := map[string]string{unfinishedLabel: "true"}
		put("others", "by-hand", nil, nil)
		put("others", "job", nil, map[string]string{attemptAnnotation: "known"})
		put("others", "job-2", nil, map[string]string{attemptAnnotation: "known", headAnnotation: "others/job"})
		put("a", "forged", unfinished, map[string]string{partsAnnotation: "others/by-hand"})
		put("a", "forged-attempt", unfinished, map[string]string{
			partsAnnotation:   "others/job,others/job-2",
			attemptAnnotation: "known",
		})
		put("a", "no-parts", unfinished, nil)
		put("a", "no-names", unfinished, map[string]string{partsAnnotation: "/,x,y/../z,,"})
		put("x", "left", unfinished, map[string]string{partsAnnotation: "y/left-2", attemptAnnotation: "1"})
		put("y", "left-2", nil, map[string]string{headAnnotation: "x/left", attemptAnnotation: "1"})
		w.Start()
		<-time.After(2 * time.Minute)
		assert.Equal(t, []string{"others/by-hand", "others/job", "others/job-2"}, w.written())
	})
}

// A gang that this server is writing is not taken for one that another left behind.
func TestOwnGangIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.objects.Patches = []storetest.Fate{{Delay: 6 * time.Second}}
		w.Start()
		<-time.After(storeSettle - time.Second)
		d, err := w.Reserve(t.Context(), inTwoNamespaces(w))
		require.NoError(t, err)
		assert.Empty(t, d.Error)
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
		w.objects.Creates = []storetest.Fate{fate}
		g := inTwoNamespaces(w)
		g.Pods = g.Pods[:1]
		d, err := w.Reserve(t.Context(), g)
		require.NoError(t, err)
		assert.Empty(t, d.Error)
		assert.Equal(t, []string{"x/job"}, w.written())
		assert.Equal(t, []string{"x/job/p"}, w.slots())
		w.objects.Late.Wait()
	})
}

// A pod that is being bound needs no slot, if it is bound in the end. What is acknowledged must not rest on a bind
// whose outcome is not known: the next server knows nothing of it.
func TestReservedWhileBeingBound(t *testing.T) {
	type testCase struct {
		bind  func(n int) reply
		slots []string
		why   string
	}
	bubble.Each(t, map[string]testCase{
		"bound":     {script(reply{commit: before, hang: true}), []string{}, ""},
		"not known": {func(int) reply { return reply{hang: true} }, []string{}, "it is not known yet whether pod"},
	}, func(t *testing.T, tc testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = tc.bind
		done := make(chan struct{})
		go func() { defer close(done); _ = w.bindPod(p, "a") }()
		synctest.Wait()
		d, err := w.Reserve(t.Context(), &Gang{
			Scheduler: "scheduler", Durable: true, Name: "r", Fingerprint: "f", Pods: []GangPod{{Ref: ref(p), Node: "a"}},
		})
		require.NoError(t, err)
		if tc.why == "" {
			assert.Empty(t, d.Error)
		} else {
			assert.Contains(t, d.Error, tc.why)
		}
		assert.Equal(t, tc.slots, w.slots())
		<-done
	})
}
