package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// newStore returns a Store of an API server that is nothing but handler.
func newStore(t *testing.T, timeout time.Duration, handler http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return storeAt(t, server.URL, timeout)
}

func storeAt(t *testing.T, url string, timeout time.Duration) *Store {
	t.Helper()
	client, err := versioned.NewForConfig(&rest.Config{Host: url})
	require.NoError(t, err)
	return New(client, timeout)
}

// answer replies with an object or a Status.
func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func status(code int, reason metav1.StatusReason, details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "as it is", Details: details,
	}
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
	s := newStore(t, 0, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = request{r.Method, r.URL.Path, string(body)}
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

	stored, err = s.Get(t.Context(), "ns", "r")
	require.NoError(t, err)
	assert.Equal(t, "a", stored.Spec.Slots[0].Name)
	assert.Equal(t, request{http.MethodGet, path + "/r", ""}, got)

	require.NoError(t, s.Delete(t.Context(), "ns", "r", "u"))
	assert.Equal(t, http.MethodDelete, got.method)
	assert.Contains(t, got.body, `"preconditions":{"uid":"u"}`)
}

func TestOutcomesOfAnswers(t *testing.T) {
	details := func(kind, name string) *metav1.StatusDetails { return &metav1.StatusDetails{Kind: kind, Name: name} }
	tests := map[string]struct {
		code   int
		status *metav1.Status
		want   Outcome
	}{
		"created":            {http.StatusCreated, nil, Done},
		"exists":             {http.StatusConflict, status(409, metav1.StatusReasonAlreadyExists, nil), Exists},
		"conflict":           {http.StatusConflict, status(409, metav1.StatusReasonConflict, nil), Refused},
		"missing":            {http.StatusNotFound, status(404, metav1.StatusReasonNotFound, details("reservations", "r")), Missing},
		"namespace missing":  {http.StatusNotFound, status(404, metav1.StatusReasonNotFound, details("namespaces", "ns")), Refused},
		"not installed":      {http.StatusNotFound, status(404, metav1.StatusReasonNotFound, &metav1.StatusDetails{}), Refused},
		"forbidden":          {http.StatusForbidden, status(403, metav1.StatusReasonForbidden, nil), Refused},
		"invalid":            {http.StatusUnprocessableEntity, status(422, metav1.StatusReasonInvalid, nil), Refused},
		"too large":          {http.StatusRequestEntityTooLarge, status(413, metav1.StatusReasonRequestEntityTooLarge, nil), Refused},
		"too many requests":  {http.StatusTooManyRequests, status(429, metav1.StatusReasonTooManyRequests, nil), NotSent},
		"request timeout":    {http.StatusRequestTimeout, status(408, metav1.StatusReasonTimeout, nil), Unknown},
		"internal error":     {http.StatusInternalServerError, status(500, metav1.StatusReasonInternalError, nil), Unknown},
		"server unavailable": {http.StatusServiceUnavailable, status(503, metav1.StatusReasonServiceUnavailable, nil), Unknown},
		"gateway timeout":    {http.StatusGatewayTimeout, status(504, metav1.StatusReasonTimeout, nil), Unknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sent := 0
			s := newStore(t, 0, func(w http.ResponseWriter, _ *http.Request) {
				sent++
				w.Header().Set("Retry-After", "1")
				if tc.status == nil {
					answer(w, tc.code, aReservation())
					return
				}
				answer(w, tc.code, tc.status)
			})
			_, err := s.Create(t.Context(), aReservation())
			assert.Equal(t, tc.want, Classify(err), err)
			assert.Equal(t, 1, sent, "a request is sent once, whatever its answer asks for")
		})
	}
}

func TestOutcomesWithoutAnAnswer(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		_, err = storeAt(t, "http://"+listener.Addr().String(), 0).Create(t.Context(), aReservation())
		assert.Equal(t, NotSent, Classify(err), err)
	})
	t.Run("the connection is lost", func(t *testing.T) {
		s := newStore(t, 0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		_, err := s.Create(t.Context(), aReservation())
		assert.Equal(t, Unknown, Classify(err), err)
	})
	t.Run("no answer in time", func(t *testing.T) {
		s := newStore(t, 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		_, err := s.Create(t.Context(), aReservation())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, Unknown, Classify(err))
	})
	t.Run("not JSON", func(t *testing.T) {
		s := newStore(t, 0, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
		_, err := s.Create(t.Context(), aReservation())
		assert.Equal(t, Unknown, Classify(err), err)
	})
}

func TestOutcomeOfWrappedErrors(t *testing.T) {
	gone := apierrors.NewNotFound(v1alpha1.Resource("reservations"), "r")
	assert.Equal(t, Missing, Classify(fmt.Errorf("reading: %w", gone)))
	assert.Equal(t, Refused, Classify(apierrors.NewNotFound(corev1.Resource("namespaces"), "ns")))
	assert.Equal(t, Unknown, Classify(errors.New("anything else")))
}
