package reserve_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

var rsvKind = v1alpha1.Resource("reservations")

// aDurableGang is a gang of one pod, by a name.
func aDurableGang(w *world) *reserve.Request {
	p := newPod("p")
	w.bring(p)
	g := onA("", p)
	g.Durable, g.Name = true, "job"
	return g
}

// succeed returns the Arbiter of a server that has read the objects at its start, as pkg/reservations does.
func (w *world) succeed(change func(*reserve.Options)) *reserve.Arbiter {
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

// The API server answers 409 for errors of its storage, too: what it says then may have been written.
func TestConflictThatWasWritten(t *testing.T) {
	conflict := apierrors.NewConflict(rsvKind, "job", errors.New("storage"))
	bubble.Each(t, map[string]storetest.Fate{
		"written": {Err: conflict}, "written later": {Err: conflict, Commit: 30 * time.Millisecond},
		"not written": {Never: true, Err: conflict},
	}, func(t *testing.T, fate storetest.Fate) {
		w := newWorld(t)
		w.Store.Creates = []storetest.Fate{fate}
		assert.Empty(t, w.reserve(w.Arbiter, aDurableGang(w)))
		assert.Equal(t, []string{"ns/job"}, w.written())
		assert.Equal(t, []string{"ns/job/p"}, w.slots())
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
			_, _ = w.single.Bind(auth.Inside(t.Context()), ref(p), "a")
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
		g := aDurableGang(w)
		begun := time.Now()
		assert.Contains(t, w.reserve(w.Arbiter, g), "another server may be deciding by now")
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
