package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// An answer comes as the leader gave it: status, header, body and length.
func TestPassedOn(t *testing.T) {
	leader, follower := pair(t)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.Header().Set("X-Answer", r.URL.RequestURI()+" "+r.Header.Get("Content-Type"))
		w.Header().Set("Content-Length", "7")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write(append([]byte("got "), content...))
	})
	got := follower.post("/v1/x?a;b=%2F", "abc", "Content-Type", "application/json", "Expect", "100-continue")
	assert.Equal(t, http.StatusConflict, got.status)
	assert.Equal(t, "got abc", got.body)
	assert.Equal(t, int64(7), got.length)
	assert.Equal(t, "/v1/x?a;b=%2F application/json", got.header.Get("X-Answer"))
	assert.Equal(t, "leader", got.header.Get(ServerHeader))
	assert.Equal(t, int32(1), leader.asked.Load())
	assert.Zero(t, follower.asked.Load())

	assert.Equal(t, "leader", leader.post("/x", "abc").header.Get(ServerHeader), "who decides says so, too")
	follower.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })
	assert.Equal(t, "own", follower.post("/own", "").body, "some paths are each server's own")

	large := bytes.Repeat([]byte("x"), 1<<20)
	leader.answer(echo)
	assert.Equal(t, string(large), follower.post("/x", string(large)).body)
}

// A body that is too long is refused, and not sent.
func TestBodyLimit(t *testing.T) {
	leader, follower := pair(t)
	request, err := http.NewRequest(http.MethodPost, follower.front.URL+"/x", io.LimitReader(zeros{}, maxBody+1))
	require.NoError(t, err)
	request.ContentLength = maxBody + 1
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil { // else the connection was closed before all was sent
		assert.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
		require.NoError(t, response.Body.Close())
	}
	assert.Zero(t, leader.asked.Load())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Each event of a stream comes when it is sent, and the stream ends with its reader, with the leadership, or with the
// server that passes it on.
func TestStream(t *testing.T) {
	w := newWorld(t)
	w.writeTimeout = time.Nanosecond // not for streams
	leader, follower := w.pair()
	follower.leaveAtOnce()
	next, gone := make(chan string), make(chan struct{}, 1)
	stream := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", reserver.BatchMediaType)
		for {
			select {
			case event := <-next:
				_, _ = io.WriteString(w, event+"\n")
				assert.NoError(t, http.NewResponseController(w).Flush())
			case <-r.Context().Done():
				gone <- struct{}{}
				return
			}
		}
	}
	leader.answer(stream)
	open := func() (*http.Response, *bufio.Scanner) {
		opened := make(chan *http.Response)
		go func() {
			response, err := http.Get(follower.front.URL + "/v1/watch") //nolint:bodyclose // who takes it closes it
			assert.NoError(t, err)
			opened <- response
		}()
		next <- "first"
		response := <-opened
		lines := bufio.NewScanner(response.Body)
		require.True(t, lines.Scan())
		assert.Equal(t, "first", lines.Text())
		return response, lines
	}
	response, lines := open()
	next <- "second"
	require.True(t, lines.Scan(), "%v", lines.Err())
	assert.Equal(t, "second", lines.Text())
	require.NoError(t, response.Body.Close())
	<-gone

	response, _ = open()
	other := leader.w.server("other")
	other.answer(stream)
	other.lead()
	_, _ = io.ReadAll(response.Body) // it ends, although a paused leader would never end it; most often it is cut off
	_ = response.Body.Close()
	<-gone

	response, lines = open()
	require.NoError(t, follower.HandOver(t.Context()))
	assert.False(t, lines.Scan())
	require.NoError(t, lines.Err(), "it is not cut off")
	require.NoError(t, response.Body.Close())
}

// What could not be sent waits for the next leader.
func TestWaitsForALeader(t *testing.T) {
	unreachable := map[string]func(leader, follower *server){
		"nobody listens": func(leader, _ *server) {
			leader.w.raise(func(spec *v1alpha1.LedgerTermSpec) { spec.URL = "https://" + freeAddress(leader.w.t) })
		},
		"it has no address": func(leader,
			_ *server,
		) {
			leader.w.raise(func(spec *v1alpha1.LedgerTermSpec) { spec.URL = "" })
		},
		"it does not decide": func(leader, _ *server) { leader.decides.Store(false) },
		"another has its address": func(leader, follower *server) {
			leader.w.raise(func(spec *v1alpha1.LedgerTermSpec) { spec.URL = follower.peer.URL })
		},
	}
	for name, prepare := range unreachable {
		t.Run(name, func(t *testing.T) {
			leader, follower := pair(t)
			next := leader.w.server("next")
			require.Eventually(t, func() bool { return next.Why() == "" }, time.Minute, 5*time.Millisecond)
			prepare(leader, follower)
			follower.upToDate()
			replies := make(chan reply)
			go func() { replies <- follower.post("/x", "body") }()
			follower.awaitWaiting(1)
			next.answer(echo)
			next.lead()
			got := <-replies
			assert.Equal(t, http.StatusOK, got.status)
			assert.Equal(t, "body", got.body)
			assert.Equal(t, "next", got.header.Get(ServerHeader))
			assert.Zero(t, leader.asked.Load())
			assert.InDelta(t, 1, follower.Held(), 0)
			assert.Zero(t, follower.Unknown())
		})
	}
}

// Whoever begins to decide itself answers what waits, and that is under way, too, when it hands over.
func TestDecidesMeanwhile(t *testing.T) {
	w := newWorld(t)
	s := w.server("only")
	replies := make(chan reply)
	go func() { replies <- s.post("/x", "body") }()
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		assert.Error(t, s.HandOver(ctx))
	})
	s.awaitWaiting(1)
	s.lead()
	got := <-replies
	assert.Equal(t, "body", got.body)
	assert.Equal(t, "only", got.header.Get(ServerHeader))
}

// A request waits no longer than it may, and no more requests than may do.
func TestWaitIsBounded(t *testing.T) {
	w := newWorld(t)
	s := w.server("only")
	s.hold = 300 * time.Millisecond
	got := s.post("/x", "")
	assert.Equal(t, "only does not decide\n", got.body, "the server's own answer")
	assert.Equal(t, "it is not known where another server can be reached", s.Why())

	s.hold = time.Hour
	assert.Equal(t, http.StatusServiceUnavailable, s.post("/x?timeout=200ms", "").status)
	assert.Zero(t, s.waiting.Load())
	s.waiting.Store(maxWaiting)
	assert.Equal(t, http.StatusServiceUnavailable, s.post("/x", "").status)
	assert.EqualValues(t, maxWaiting, s.waiting.Load())
}

// A server that finds no other says what to install, or which right it lacks.
func TestWhyNobodyIsKnown(t *testing.T) {
	tests := map[string]struct {
		prepare func(w *world)
		want    string
	}{
		"no definition": {
			func(w *world) { w.objects.Resources[0].APIResources = nil },
			"it is not known where another server can be reached: the cluster has no definition of ledgerterms: kubectl " +
				"apply -k manifests/crd",
		},
		"no right": {
			func(w *world) {
				deny := func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(v1alpha1.Resource("ledgerterms"), "", errors.New("no role"))
				}
				w.objects.PrependReactor("list", "ledgerterms", deny)
			},
			"the API server denies this server ledgerterms",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.prepare(w)
			s := w.server("only")
			require.Eventually(t, func() bool { return strings.Contains(s.Why(), tt.want) }, time.Minute, 5*time.Millisecond)
		})
	}
}

// A request waits as long as it may.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(Options{
			Name: "only", Client: newWorld(t).objects, Moved: func() {},
			Undecided: func() string { return "another does" },
		})
		require.NoError(t, err)
		begun := time.Now()
		response, err := f.send(httptest.NewRequest(http.MethodPost, "/x", http.NoBody), nil, maxHold)
		if !assert.ErrorIs(t, err, errNobody) {
			require.NoError(t, response.Body.Close())
		}
		assert.Equal(t, maxHold, time.Since(begun))
		assert.InDelta(t, 1, f.Held(), 0)
	})
}

// A request of which nobody knows what was done is not sent again, even where another leader is known by then: where
// the leader has cut it off, and where it is paused, and never would.
func TestLostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		header string
		paused bool
	}{
		"plain": {header: "X-Plain"}, "said to be idempotent": {header: "Idempotency-Key"},
		"paused": {header: "X-Plain", paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower := pair(t)
			assert.Equal(t, http.StatusOK, follower.post("/x", "").status) // over a connection that is used again
			if tc.paused {
				follower.leaveAtOnce()
			}
			next := leader.w.server("next")
			leader.answer(func(_ http.ResponseWriter, r *http.Request) {
				next.lead()
				if !tc.paused {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.Copy(io.Discard, r.Body) // from then on the end of the connection is seen
				<-r.Context().Done()
			})
			got := follower.post("/x", "body", tc.header, "1")
			assert.Equal(t, http.StatusServiceUnavailable, got.status)
			assert.Contains(t, got.body, "outcome is unknown")
			assert.Equal(t, int32(1), follower.refused.Load())
			assert.Equal(t, int32(2), leader.asked.Load())
			assert.Zero(t, next.asked.Load())
			assert.InDelta(t, 1, follower.Unknown(), 0)
			assert.Zero(t, follower.Held())
			follower.upToDate()
			assert.Equal(t, "next", follower.post("/x", "").body)
		})
	}
}

// A client that does not wait for a leader has lost nothing.
func TestClientThatLeaves(t *testing.T) {
	leader, follower := pair(t)
	leader.decides.Store(false)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, follower.front.URL+"/x", http.NoBody)
	require.NoError(t, err)
	left := make(chan error)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		left <- err
	}()
	follower.awaitWaiting(1)
	leave()
	require.Error(t, <-left)
	follower.awaitWaiting(0)
	assert.InDelta(t, 1, follower.Held(), 0)
	assert.Zero(t, follower.Unknown())
}

// The leader knows who asked by what the follower says, and nobody else's word counts.
func TestCaller(t *testing.T) {
	leader, follower := pair(t)
	var mu sync.Mutex
	var callers []string
	tell := func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		caller := auth.Of(r.Context())
		callers = append(callers, caller.GetName()+" "+strings.Join(caller.GetGroups(), ","))
		for name := range r.Header {
			assert.NotContains(t, strings.ToLower(name), "x-remote-")
		}
	}
	leader.answer(tell)
	follower.answer(tell)
	forged := []string{
		"X-Remote-User", "admin", "x-remote-group", "system:masters", "X-Remote-Extra-A", "b",
		"X-Remote-Uid", "1",
	}
	for _, ask := range []func(){
		func() { follower.post("/x", "", forged...) },
		func() { leader.post("/x", "", forged...) },
		func() { follower.post("/own", "", forged...) },
		func() { follower.post("/x", "", append(forged, "Connection", "X-Remote-User")...) },
	} {
		ask()
	}
	const plain = "globalreserve:trusted " // as whoever comes by plain HTTP
	assert.Equal(t, []string{plain, plain, plain, plain}, callers)
}

// A follower can say that requests are passed on only once the leader has answered it: the one that is named may be
// gone. And nobody passes on to itself.
func TestWhetherTheLeaderCanBeAsked(t *testing.T) {
	w := newWorld(t)
	gone := freeAddress(t)
	w.raise(func(spec *v1alpha1.LedgerTermSpec) {
		spec.Leader, spec.URL, spec.PublicKey = "gone", "https://"+gone, "ff"
	})
	s := w.server("only")
	s.upToDate()
	assert.Contains(t, s.Why(), "server gone cannot be asked")

	next := w.server("next")
	next.lead()
	s.knows(next)
	canAsk := func() bool { return s.Why() == "" }
	require.Eventually(t, canAsk, time.Minute, 5*time.Millisecond, "nobody has asked it anything")
	assert.Zero(t, next.asked.Load())
	next.upToDate()
	next.decides.Store(false)
	assert.Equal(t, "this server is to decide itself", next.Why())
	answers503 := func() bool { return strings.Contains(s.Why(), "it answers 503") }
	require.Eventually(t, answers503, time.Minute, 5*time.Millisecond)
}

// A server that is stopping finishes what it was asked, and passes on what it is asked from then on: to a leader that
// is not there yet.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	leader, next := w.pair()
	asked, finish := make(chan struct{}), make(chan struct{})
	leader.answer(func(rw http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-finish
		_, _ = io.WriteString(rw, "finished")
	})
	var running sync.WaitGroup
	running.Go(func() { assert.Equal(t, "finished", leader.post("/x", "").body) })
	<-asked
	handed := make(chan error, 1)
	go func() { handed <- leader.HandOver(t.Context()) }()
	require.Eventually(t, leader.isLeaving, time.Minute, time.Millisecond)
	for _, server := range []*server{leader, next} {
		running.Go(func() { assert.Equal(t, "follower", server.post("/x", "").body, "by %s", server.o.Name) })
	}
	leader.awaitWaiting(1)
	next.awaitWaiting(1)
	assert.Empty(t, handed, "a request is under way")
	close(finish)
	require.NoError(t, <-handed)
	leader.decides.Store(false) // as it has given up the Lease
	next.lead()
	running.Wait()
	assert.Equal(t, int32(1), leader.asked.Load())
	assert.Equal(t, int32(2), next.asked.Load())
}

// A request is on its way to a leader when another one has followed. That leader says that it has done nothing, and the
// other one decides it: the outcome is known.
func TestFollowedWhileAsked(t *testing.T) {
	w := newWorld(t)
	leader, follower := w.pair()
	next := w.server("next")
	asked, goOn := make(chan struct{}), make(chan struct{})
	leader.whenReached(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" {
			close(asked)
			<-goOn
		}
	})
	leader.decides.Store(false)
	var running sync.WaitGroup
	running.Go(func() { assert.Equal(t, "next", follower.post("/x", "").body) })
	<-asked
	next.lead()
	follower.upToDate()
	close(goOn)
	running.Wait()
	assert.Zero(t, follower.refused.Load())
}

// A server that nobody can follow does not keep those waiting who ask it while it stops.
func TestHandOverToNobody(t *testing.T) {
	only := newWorld(t).server("only")
	only.lead()
	require.NoError(t, only.HandOver(t.Context()))
	only.decides.Store(false)
	assert.Equal(t, http.StatusServiceUnavailable, only.post("/x", "").status)
	assert.Zero(t, only.Held())
}

// A leader may be known before it is known where it can be asked. Until then clients are sent elsewhere.
func TestAddressComesLater(t *testing.T) {
	w := newWorld(t)
	leader, follower := w.server("leader"), w.server("follower")
	follower.hold = 10 * time.Millisecond
	leader.decides.Store(true)
	w.raise(func(spec *v1alpha1.LedgerTermSpec) { spec.Leader = "leader" })
	follower.upToDate()
	got := follower.post("/x", "")
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.True(t, got.closes, "the next connection may be to another server")

	w.objects.Edit(func(term *v1alpha1.LedgerTerm) {
		term.Spec.URL, term.Spec.PublicKey = leader.peer.URL, leader.Key().Public
	})
	leader.knows(follower)
	follower.hold = time.Minute
	assert.Equal(t, "leader", follower.post("/x", "").body)
}
