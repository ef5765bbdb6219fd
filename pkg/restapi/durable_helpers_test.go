package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

var (
	errForbidden = apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
	errTooMany   = apierrors.NewTooManyRequests("later", 1)
	errInternal  = apierrors.NewInternalError(errors.New("storage"))
	errLost      = errors.New("connection lost")
)

// fate is what becomes of a request to the API server. The zero value is what a
// good server does.
type fate struct {
	delay  time.Duration // before the answer
	never  bool          // it is not carried out
	commit time.Duration // it is carried out so long after the answer
	err    error         // instead of the answer
}

// fakeStore stands for the API server and for the controller that follows it.
type fakeStore struct {
	ledger *ledger.Ledger
	late   sync.WaitGroup // requests that are carried out after their answer

	mu                                         sync.Mutex
	objects                                    map[types.NamespacedName]*v1alpha1.Reservation
	uids                                       int
	creates, gets, deletes                     []fate // of the next requests, in order
	release                                    error
	createCount, getCount, deleteCount, writes int
}

func newFakeStore(l *ledger.Ledger) *fakeStore {
	return &fakeStore{ledger: l, objects: map[types.NamespacedName]*v1alpha1.Reservation{}}
}

// heal makes all requests that come end well.
func (s *fakeStore) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creates, s.gets, s.deletes = nil, nil, nil
}

// next takes the fate of a request off a list.
func (s *fakeStore) next(fates *[]fate, count *int) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if len(*fates) == 0 {
		return fate{}
	}
	f := (*fates)[0]
	*fates = (*fates)[1:]
	return f
}

// carryOut does what becomes of a request and returns what is answered.
func (s *fakeStore) carryOut(ctx context.Context, f fate, do func() error) error {
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
		}
	}
	switch {
	case f.never:
	case f.commit > 0:
		s.late.Go(func() {
			<-time.After(f.commit)
			_ = do()
		})
	default:
		if err := do(); err != nil || f.err == nil {
			return err
		}
	}
	return f.err
}

func (s *fakeStore) Create(ctx context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	key := types.NamespacedName{Namespace: rsv.Namespace, Name: rsv.Name}
	var stored *v1alpha1.Reservation
	object := rsv.DeepCopy()
	err := s.carryOut(ctx, s.next(&s.creates, &s.createCount), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.objects[key] != nil {
			return apierrors.NewAlreadyExists(v1alpha1.Resource("reservations"), key.Name)
		}
		s.uids++
		s.writes++
		object.UID = types.UID(fmt.Sprint("uid-", s.uids))
		object.CreationTimestamp = metav1.Time{Time: time.Now().Truncate(time.Second)}
		s.objects[key] = object
		stored = object.DeepCopy()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

func (s *fakeStore) Get(ctx context.Context, namespace, name string) (*v1alpha1.Reservation, error) {
	var found *v1alpha1.Reservation
	err := s.carryOut(ctx, s.next(&s.gets, &s.getCount), func() error {
		if found = s.object(namespace, name); found == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("reservations"), name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *fakeStore) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	f := s.next(&s.deletes, &s.deleteCount)
	return s.carryOut(ctx, f, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch object := s.objects[key]; {
		case object == nil:
			return apierrors.NewNotFound(v1alpha1.Resource("reservations"), name)
		case object.UID != uid:
			return apierrors.NewConflict(v1alpha1.Resource("reservations"), name, errors.New("another UID"))
		default:
			delete(s.objects, key)
			for i := range object.Spec.Slots {
				if f.err != nil { // the watch tells the controller, which releases the room
					s.ledger.ReleaseHolds(namespace, name, object.Spec.Slots[i].Name)
				}
			}
			s.writes++
			return nil
		}
	})
}

func (s *fakeStore) ReleaseSlots(_ context.Context, namespace, name string, slots []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if s.release != nil || object == nil {
		return errors.Join(s.release, errors.New("not released"))
	}
	s.writes++
	for _, slot := range slots {
		object.Status.Slots = append(object.Status.Slots, v1alpha1.SlotStatus{Name: slot, State: v1alpha1.SlotReleased})
	}
	s.ledger.ReleaseHolds(namespace, name, slots...)
	return nil
}

// object returns a copy of an object, or nil.
func (s *fakeStore) object(namespace, name string) *v1alpha1.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// all returns copies of the objects, ordered by name.
func (s *fakeStore) all() []*v1alpha1.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*v1alpha1.Reservation
	for _, key := range slices.SortedFunc(maps.Keys(s.objects), func(a, b types.NamespacedName) int {
		return bytes.Compare([]byte(a.String()), []byte(b.String()))
	}) {
		list = append(list, s.objects[key].DeepCopy())
	}
	return list
}

// durable is an API with a store, without a network: it may run in a bubble.
type durable struct {
	*fixture
	store   *fakeStore
	handler http.Handler
	noKind  bool
}

func newDurable(t testing.TB) *durable {
	d := &durable{fixture: newBareFixture(t)}
	d.store = newFakeStore(d.ledger)
	d.restart()
	t.Cleanup(func() {
		d.api.Stop()
		d.store.late.Wait()
		require.NoError(t, d.ledger.CheckInvariants())
	})
	return d
}

// restart is a new server on the objects that are there. The ledger stays: it
// is what a start would make of them, and forget drops what is in memory only.
func (d *durable) restart() {
	if d.api != nil {
		d.api.Stop()
	}
	options := d.options(Limits{})
	options.Store, options.Durable, options.Clock = d.store, func() bool { return !d.noKind }, clock.RealClock{}
	d.api = New(options)
	d.handler = testRouter(d.api, d.log)
}

// forget makes the ledger what a start would make of the objects.
func (d *durable) forget() {
	views, _ := d.ledger.Holds()
	for _, view := range views {
		d.ledger.ReleaseHolds(view.Ref.Namespace, view.Ref.Name, view.Ref.Slot)
	}
	for _, object := range d.store.all() {
		holds, err := convert.GrantedHolds(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range holds {
			d.ledger.ObserveHold(holds[i])
		}
	}
}

// ask sends a request and returns the status and what was answered.
func (d *durable) ask(path string, request any) (int, reserver.Answer) {
	data, err := json.Marshal(request)
	require.NoError(d.t, err)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(data)))
	var answer reserver.Answer
	require.NoError(d.t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
	return w.Code, answer
}

// reserve sends a /reserve that is answered with 200.
func (d *durable) reserve(request body) reserver.Answer {
	d.t.Helper()
	code, answer := d.ask("/reserve", request)
	require.Equal(d.t, http.StatusOK, code, answer.Error)
	return answer
}

func (d *durable) unreserve(request body) reserver.Answer {
	d.t.Helper()
	code, answer := d.ask("/unreserve", request)
	require.Equal(d.t, http.StatusOK, code, answer.Error)
	return answer
}

// holds lists the holds of the ledger as namespace/name/slot@node.
func (d *durable) holds() []string {
	views, _ := d.ledger.Holds()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String()+"@"+views[i].Node)
	}
	return list
}

// written lists what the objects say is held, in the same form.
func (d *durable) written() []string {
	list := []string{}
	for _, object := range d.store.all() {
		holds, err := convert.GrantedHolds(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range holds {
			list = append(list, holds[i].Ref.String()+"@"+holds[i].Node)
		}
	}
	slices.Sort(list)
	return list
}
