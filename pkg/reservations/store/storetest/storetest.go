// Package storetest is an API server that has nothing but Reservations, for tests: it keeps them in memory, and a test
// sets beforehand what becomes of each request. It needs no network, so it may be used in a bubble of testing/synctest.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// Fate is what becomes of a request. The zero value is what a good server does.
type Fate struct {
	Delay  time.Duration // before the answer
	Never  bool          // it is not carried out
	Commit time.Duration // it is carried out so long after the answer
	Err    error         // instead of the answer
}

// Server stands for the API server and for the controller that follows it.
type Server struct {
	ledger *ledger.Ledger
	// Late are the requests that are carried out after their answer.
	Late sync.WaitGroup

	mu      sync.Mutex // guards what follows
	Objects map[types.NamespacedName]*v1alpha1.Reservation
	uids    int
	version int // of the last write
	// Creates, Gets, Deletes and Patches are the fates of the next requests, in order.
	Creates, Gets, Deletes, Patches []Fate
	// Behind is how far its clock is behind that of the test.
	Behind time.Duration
	// Release is the error of ReleaseSlots.
	Release error
	// Writes counts the requests that were carried out, the others those that came.
	Writes, CreateCount, GetCount, DeleteCount, patchCount int
}

// New returns a Server whose controller releases slots in a ledger.
func New(l *ledger.Ledger) *Server {
	return &Server{ledger: l, Objects: map[types.NamespacedName]*v1alpha1.Reservation{}}
}

// Store returns a Store of the server.
func (s *Server) Store(t testing.TB) *store.Store {
	t.Helper()
	client, err := versioned.NewForConfigAndClient(&rest.Config{Host: "http://api-server", QPS: -1},
		&http.Client{Transport: s})
	require.NoError(t, err)
	return store.New(client, election.NewOwnTerm(0),
		election.NewWrites(time.Minute, func() bool { return true }))
}

// NextCreates are the fates of the creates to come.
func (s *Server) NextCreates(fates ...Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Creates = fates
}

// Heal makes all requests to come succeed.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Creates, s.Gets, s.Deletes, s.Patches = nil, nil, nil, nil
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	answer, err := s.serve(r, body)
	status := http.StatusOK
	var api apierrors.APIStatus
	switch {
	case errors.As(err, &api):
		failure := api.Status()
		failure.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer, status = &failure, int(failure.Code)
	case err != nil:
		return nil, err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data)),
	}, nil
}

func (s *Server) serve(r *http.Request, body []byte) (any, error) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/globalreserve.io/v1alpha1/"), "/")
	key := types.NamespacedName{}
	if len(parts) > 2 {
		key.Namespace = parts[1]
	}
	if len(parts) > 3 {
		key.Name = parts[3]
	}
	switch {
	case r.Method == http.MethodPost:
		return s.create(r.Context(), body)
	case r.Method == http.MethodPatch:
		return s.patch(r.Context(), key, body)
	case r.Method == http.MethodDelete:
		return s.delete(r.Context(), key, body)
	case key.Name == "":
		return s.list(r.URL.Query().Get("labelSelector")), nil
	default:
		return s.get(r.Context(), key)
	}
}

// next takes the fate of a request off a list.
func (s *Server) next(fates *[]Fate, count *int) Fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if len(*fates) == 0 {
		return Fate{}
	}
	f := (*fates)[0]
	*fates = (*fates)[1:]
	return f
}

// carryOut does what becomes of a request and returns what is answered.
func (s *Server) carryOut(ctx context.Context, f Fate, do func() error) error {
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
		}
	}
	switch {
	case f.Never:
	case f.Commit > 0:
		s.Late.Go(func() {
			<-time.After(f.Commit)
			_ = do()
		})
	default:
		if err := do(); err != nil || f.Err == nil {
			return err
		}
	}
	return f.Err
}

func (s *Server) create(ctx context.Context, body []byte) (any, error) {
	object := &v1alpha1.Reservation{}
	if err := json.Unmarshal(body, object); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	var stored *v1alpha1.Reservation
	err := s.carryOut(ctx, s.next(&s.Creates, &s.CreateCount), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.Objects[key] != nil {
			return apierrors.NewAlreadyExists(v1alpha1.Resource("reservations"), key.Name)
		}
		s.uids++
		object.UID = types.UID(fmt.Sprint("uid-", s.uids))
		s.wrote(object)
		object.CreationTimestamp = metav1.Time{Time: time.Now().Add(-s.Behind).Truncate(time.Second)}
		s.Objects[key] = object
		stored = object.DeepCopy()
		return nil
	})
	if err != nil {
		return nil, err // and it may be stored yet
	}
	return stored, nil
}

func (s *Server) get(ctx context.Context, key types.NamespacedName) (any, error) {
	var found *v1alpha1.Reservation
	fate := s.next(&s.Gets, &s.GetCount)
	fate.Commit = 0 // nobody sees what is read after the answer
	err := s.carryOut(ctx, fate, func() error {
		if found = s.Object(key.Namespace, key.Name); found == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("reservations"), key.Name)
		}
		return nil
	})
	return found, err
}

func (s *Server) list(label string) any {
	list := &v1alpha1.ReservationList{TypeMeta: metav1.TypeMeta{
		APIVersion: "globalreserve.io/v1alpha1",
		Kind:       "ReservationList",
	}}
	for _, object := range s.All() {
		if _, ok := object.Labels[label]; ok {
			list.Items = append(list.Items, *object)
		}
	}
	return list
}

// patch knows patches of labels and annotations with a UID that must be the object's.
func (s *Server) patch(ctx context.Context, key types.NamespacedName, body []byte) (any, error) {
	var change struct {
		Metadata struct {
			UID                 types.UID
			Labels, Annotations map[string]*string
		}
	}
	if err := json.Unmarshal(body, &change); err != nil {
		return nil, err
	}
	var stored *v1alpha1.Reservation
	err := s.carryOut(ctx, s.next(&s.Patches, &s.patchCount), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		object, err := s.find(key, &metav1.Preconditions{UID: &change.Metadata.UID})
		if err != nil {
			return err
		}
		labels, annotations := merged(object.Labels, change.Metadata.Labels),
			merged(object.Annotations, change.Metadata.Annotations)
		if !maps.Equal(labels, object.Labels) || !maps.Equal(annotations, object.Annotations) {
			object.Labels, object.Annotations = labels, annotations
			s.wrote(object)
		}
		stored = object.DeepCopy()
		return nil
	})
	return stored, err
}

// merged returns what a merge patch makes of labels or annotations.
func merged(of map[string]string, changes map[string]*string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, of)
	for name, value := range changes {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = *value
		}
	}
	return result
}

// wrote gives an object the version of a write. s.mu is held.
func (s *Server) wrote(object *v1alpha1.Reservation) {
	s.Writes++
	s.version++
	object.ResourceVersion = strconv.Itoa(s.version)
}

// find returns the object of a name if it is as the request presumes. s.mu is held.
func (s *Server) find(key types.NamespacedName, presumed *metav1.Preconditions) (*v1alpha1.Reservation, error) {
	switch object := s.Objects[key]; {
	case object == nil:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("reservations"), key.Name)
	case object.UID != *presumed.UID:
		return nil, apierrors.NewConflict(v1alpha1.Resource("reservations"), key.Name, errors.New("another UID"))
	case presumed.ResourceVersion != nil && object.ResourceVersion != *presumed.ResourceVersion:
		return nil, apierrors.NewConflict(v1alpha1.Resource("reservations"), key.Name, errors.New("another resourceVersion"))
	default:
		return object, nil
	}
}

func (s *Server) delete(ctx context.Context, key types.NamespacedName, body []byte) (any, error) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return nil, err
	}
	f := s.next(&s.Deletes, &s.DeleteCount)
	err := s.carryOut(ctx, f, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		object, err := s.find(key, options.Preconditions)
		if err != nil {
			return err
		}
		delete(s.Objects, key)
		for i := range object.Spec.Slots {
			if f.Err != nil { // the watch notifies the controller, which releases the capacity
				s.ledger.ReleaseSlots(key.Namespace, key.Name, object.Spec.Slots[i].Name)
			}
		}
		s.Writes++
		return nil
	})
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, err
}

// ReleaseSlots does what the controller does when slots are given back.
func (s *Server) ReleaseSlots(_ context.Context, namespace, name string, slots []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.Objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if s.Release != nil || object == nil {
		return errors.Join(s.Release, errors.New("not released"))
	}
	s.wrote(object)
	for _, slot := range slots {
		object.Status.Slots = append(object.Status.Slots, v1alpha1.SlotStatus{Name: slot, State: v1alpha1.SlotReleased})
	}
	s.ledger.ReleaseSlots(namespace, name, slots...)
	return nil
}

// ToGiveBack does what the controller does.
func (s *Server) ToGiveBack(pods []ledger.PodRef) map[int][]ledger.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[int][]ledger.Slot{}
	for i := range pods {
		for key, object := range s.Objects {
			for k := range object.Spec.Slots {
				slot := &object.Spec.Slots[k]
				back := slices.ContainsFunc(object.Status.Slots, func(s v1alpha1.SlotStatus) bool { return s.Name == slot.Name })
				if back || slot.Pod == nil || pods[i].Name != slot.Pod.Name {
					continue
				}
				kept := ledger.Slot{
					Ref:       ledger.SlotRef{Namespace: key.Namespace, Name: key.Name, Slot: slot.Name},
					Scheduler: object.Spec.SchedulerName, Caller: object.Annotations[v1alpha1.CallerAnnotation],
				}
				if object.Status.Phase != v1alpha1.ReservationPending {
					kept.Node = slot.NodeName
				}
				found[i] = append(found[i], kept)
			}
		}
	}
	return found
}

// Object returns a copy of an object, or nil.
func (s *Server) Object(namespace, name string) *v1alpha1.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Objects[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// All returns copies of the objects, ordered by namespace and name.
func (s *Server) All() []*v1alpha1.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*v1alpha1.Reservation
	for _, key := range slices.SortedFunc(maps.Keys(s.Objects), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	}) {
		list = append(list, s.Objects[key].DeepCopy())
	}
	return list
}

// Change writes an object anew, with other labels unless they are nil.
func (s *Server) Change(key types.NamespacedName, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.Objects[key]
	if labels != nil {
		object.Labels = labels
	}
	s.wrote(object)
}
