package client_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// inProcess has a client of a handler, which tries nothing again.
func inProcess(t *testing.T, h http.HandlerFunc) *client.Client {
	return newClient(t, client.Options{URL: "http://localhost/prefix", Handler: h, RetryFor: time.Nanosecond})
}

func TestInProcess(t *testing.T) {
	c := inProcess(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(body), "RequestID")
		assert.EqualValues(t, len(body), r.ContentLength)
		assert.Equal(t, "/prefix/reserve", r.URL.Path)
		_, _ = io.WriteString(w, `{"FailedPods":[],"Revision":7}`)
	})
	answer, err := c.Reserve(t.Context(), ask(aPod("a", "1"), nil)) // that nil is no pod is for the server to say
	require.NoError(t, err)
	assert.EqualValues(t, 7, answer.Revision)
}

// An answer that is no for a reason of no pod's, such as a MinRevision that is not reached, is a refusal, too.
func TestRefusalWithoutRejections(t *testing.T) {
	c := inProcess(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"FailedPods":["a"],"Error":"MinRevision is 9","Revision":7}`)
	})
	answer, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
	var refused *reserver.RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Same(t, answer, refused.Answer)
	assert.Empty(t, refused.Answer.Rejections)
}

// What a request came to whose context ends is not known, whatever the handler says of it: an equal one may be under
// way.
func TestContextEndsInProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := inProcess(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := c.Reserve(ctx, ask(aPod("a", "1")))
	var unknown *reserver.UnknownOutcomeError
	require.ErrorAs(t, err, &unknown)
	assert.NotEmpty(t, unknown.RequestID)
	require.ErrorIs(t, err, context.Canceled)
}

// What was granted is known, though nobody waits for it any more.
func TestAnswerAsTheContextEndsInProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := inProcess(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		_, _ = io.WriteString(w, `{"FailedPods":[],"Revision":7}`)
	})
	answer, err := c.Reserve(ctx, ask(aPod("a", "1")))
	require.NoError(t, err)
	assert.EqualValues(t, 7, answer.Revision)
}

// No other answer is taken for what was asked.
func TestRedirectInProcess(t *testing.T) {
	c := inProcess(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/nodes", http.StatusMovedPermanently)
	})
	_, err := c.Node(t.Context(), "")
	require.ErrorContains(t, err, "the server is elsewhere")
}

// A list does not go on for ever where a page is followed by itself.
func TestPageThatIsFollowedByItself(t *testing.T) {
	c := inProcess(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Continue":"again"}`)
	})
	_, err := c.Reservations(t.Context(), nil)
	require.ErrorContains(t, err, "is followed by itself")
}

// A stream is not buffered until its end, which may never come.
func TestStreamsEndInProcess(t *testing.T) {
	c := inProcess(t, func(w http.ResponseWriter, _ *http.Request) {
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	})
	_, err := client.Get[reserver.RevisionAnswer](t.Context(), c, "/v1/watch", nil)
	require.Error(t, err)
}
