package store

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

// newStore returns a Store of an API server that is nothing but handler.
func newStore(t *testing.T, handler http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := versioned.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return New(client, election.NewOwnTerm(7), election.NewWrites(time.Minute, func() bool { return true }))
}

// answer replies with an object or a Status.
func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func aReservation() *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: "globalreserve.io/v1alpha1", Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"},
		Spec:       v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{Name: "a", NodeName: "n"}}},
	}
}

func TestRequests(t *testing.T) {
	const path = "/apis/globalreserve.io/v1alpha1/namespaces/ns/reservations"
	type request struct{ method, path, body string }
	var got request
	manager := ""
	s := newStore(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, manager = request{r.Method, r.URL.Path, string(body)}, r.URL.Query().Get("fieldManager")
		assert.NotEmpty(t, r.URL.Query().Get("timeout"), "the API server must know when to give up")
		stored := aReservation()
		stored.UID = "u"
		answer(w, http.StatusOK, stored)
	})
	stored, err := s.Create(t.Context(), aReservation())
	require.NoError(t, err)
	assert.EqualValues(t, "u", stored.UID)
	assert.Equal(t, request{http.MethodPost, path, got.body}, got)
	assert.Contains(t, got.body, `"kind":"Reservation"`)
	assert.Contains(t, got.body, `"globalreserve.io/term":"7"`)
	assert.Equal(t, election.Term(7).Manager(), manager)

	stored, err = s.Get(t.Context(), "ns", "r")
	require.NoError(t, err)
	assert.Equal(t, "a", stored.Spec.Slots[0].Name)
	assert.Equal(t, request{http.MethodGet, path + "/r", ""}, got)

	stored.UID, stored.ResourceVersion = "u", "5"
	require.NoError(t, s.Delete(t.Context(), stored))
	assert.Equal(t, request{http.MethodDelete, path + "/r", got.body}, got)
	assert.Contains(t, got.body, `"preconditions":{"uid":"u","resourceVersion":"5"}`)
}

func TestARequestIsSentOnce(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		sent := 0
		s := newStore(t, func(w http.ResponseWriter, _ *http.Request) {
			sent++
			w.Header().Set("Retry-After", "1")
			answer(w, code, &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
			})
		})
		_, err := s.Create(t.Context(), aReservation())
		require.Error(t, err)
		assert.Equal(t, 1, sent, "whatever its answer asks for")
	}
}

func TestNoAnswerInTime(t *testing.T) {
	s := newStore(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Create(ctx, aReservation())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
