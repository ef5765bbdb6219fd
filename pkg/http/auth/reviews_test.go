package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// slowReviews takes half a second for each question, and says how many it got, and has at one time at most. The fake of
// client-go answers one after another.
type slowReviews struct {
	authenticationclient.AuthenticationV1Interface
	authenticationclient.TokenReviewInterface
	asked, now, most atomic.Int64
}

func (s *slowReviews) TokenReviews() authenticationclient.TokenReviewInterface { return s }

func (s *slowReviews) Create(_ context.Context, review *authenticationv1.TokenReview,
	_ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	s.asked.Add(1)
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	<-time.After(time.Second / 2)
	s.now.Add(-1)
	review.Status.Authenticated = review.Spec.Token == "good"
	review.Status.User.Username = "token"
	return review, nil
}

// knock sends a token from an address.
func knock(handler http.Handler, token, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/bind", http.NoBody)
	r.RemoteAddr = address + ":1"
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func entrance(c *Checks) http.Handler {
	entry := &Entry{Intake: httpjson.NewIntake(1<<20, Share)}
	return c.Outside(entry, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// A caller that sends too many requests is refused, whatever it asks for, and keeps nobody else out.
func TestOutsideIsPaced(t *testing.T) {
	entry := &Entry{Open: []string{"/bind"}, Intake: httpjson.NewIntake(1<<20, Share)}
	served := func(http.ResponseWriter, *http.Request) {}
	handler := newAPIServer().checks().Outside(entry, http.HandlerFunc(served))
	synctest.Test(t, func(t *testing.T) { // so in no time, and more than one may send at once
		codes := map[int]int{}
		for range 20_000 {
			codes[knock(handler, "", "192.0.2.1").Code]++
		}
		assert.Positive(t, codes[http.StatusTooManyRequests])
		assert.Equal(t, http.StatusOK, knock(handler, "", "192.0.2.2").Code)
	})
}

// A flood of made-up tokens is no flood of TokenReviews, and keeps nobody out who comes from elsewhere, or is known.
func TestMadeUpTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer("token post /bind")
		checks := server.checks()
		handler := entrance(checks)
		require.Equal(t, http.StatusOK, knock(handler, "good", "192.0.2.1").Code)
		codes := map[int]int{}
		for i := range 3 * reviewBurst {
			w := knock(handler, fmt.Sprint("made-up-", i), "192.0.2.1")
			codes[w.Code]++
			if w.Code == http.StatusTooManyRequests {
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
				assert.Contains(t, w.Body.String(), "asked of the API server")
			}
		}
		assert.Equal(t, map[int]int{http.StatusUnauthorized: reviewBurst - 1, http.StatusTooManyRequests: 2*reviewBurst + 1},
			codes)
		assert.Equal(t, int64(2*reviewBurst+1), checks.Refused())
		assert.Equal(t, http.StatusOK, knock(handler, "good", "192.0.2.1").Code, "who is known is not asked about")
		assert.Equal(t, http.StatusUnauthorized, knock(handler, "bad", "192.0.2.2").Code, "another address has its own")
		<-time.After(time.Second)
		assert.Equal(t, http.StatusUnauthorized, knock(handler, "new", "192.0.2.1").Code)
	})
}

// The API server is asked about few tokens at a time, and about each once in a while, whatever comes of it.
func TestReviewsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowReviews{}
		tokens := newTokens(slow, newReviews())
		ask := func(token, share string) bool {
			_, ok, err := tokens.AuthenticateToken(context.WithValue(t.Context(), shareKey{}, share), token)
			return assert.NoError(t, err) && ok
		}
		var good, ended atomic.Int64
		for i := range 2 * reviewsInFlight {
			go func() {
				defer ended.Add(1)
				ask(fmt.Sprint(i), fmt.Sprint("flood ", i))
			}()
		}
		synctest.Wait()
		for range 20 {
			go func() {
				defer ended.Add(1)
				if ask("good", "scheduler") {
					good.Add(1)
				}
			}()
		}
		<-time.After(time.Hour) // of the bubble
		assert.Equal(t, int64(2*reviewsInFlight+20), ended.Load())
		assert.Equal(t, int64(20), good.Load())
		assert.LessOrEqual(t, slow.most.Load(), int64(reviewsInFlight))
		assert.Less(t, slow.asked.Load(), int64(3*reviewsInFlight+1),
			"the same token is asked about by those who came at once only")

		before := slow.asked.Load()
		assert.False(t, ask("nobody's", "scheduler"))
		assert.False(t, ask("nobody's", "scheduler"))
		assert.Equal(t, before+1, slow.asked.Load(), "a refusal is remembered")
		<-time.After(cacheFor + time.Millisecond)
		assert.False(t, ask("nobody's", "scheduler"))
		assert.Equal(t, before+2, slow.asked.Load(), "for a while")
	})
}

// Distinct paths and scheduler names cost a review each: one caller has so many, and the others theirs.
func TestDistinctQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer("b use batch")
		checks := server.checks()
		a, b := &user.DefaultInfo{Name: "a"}, &user.DefaultInfo{Name: "b"}
		for i := range reviewBurst {
			require.ErrorAs(t, checks.MayUse(t.Context(), a, fmt.Sprint(i)), new(*DeniedError))
		}
		err := checks.MayUse(t.Context(), a, "one more")
		assert.Equal(t, http.StatusTooManyRequests, Status(err))
		require.ErrorAs(t, checks.MayUse(t.Context(), a, "0"), new(*DeniedError), "what is known is known")
		require.NoError(t, checks.MayUse(t.Context(), b, "batch"))
		assert.Equal(t, reviewBurst+1, server.asked)
	})
}
