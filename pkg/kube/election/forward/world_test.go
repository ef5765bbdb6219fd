package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/election/termtest"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// world is an API server with a LedgerTerm.
type world struct {
	t       testing.TB
	objects *termtest.API
	// writeTimeout is how long the servers may take for an answer that is not a stream; 0 means for ever.
	writeTimeout time.Duration
}

func newWorld(t testing.TB) *world { return &world{t: t, objects: termtest.New(t)} }

// server is one of several servers over real TLS.
type server struct {
	*Forwarder
	w *world
	// decides says whether it decides; why is what it says otherwise.
	decides atomic.Bool
	serve   atomic.Pointer[http.HandlerFunc] // its routes
	reached atomic.Pointer[http.HandlerFunc] // what comes before others are let in
	asked   atomic.Int32                     // how often they were
	front   *httptest.Server
	peer    *httptest.Server
	refused atomic.Int32
	moved   atomic.Int32
}

// server starts one that does not decide.
func (w *world) server(name string) *server {
	w.t.Helper()
	s := &server{w: w}
	s.answer(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, name) })
	s.whenReached(func(http.ResponseWriter, *http.Request) {})
	undecided := func() string {
		if s.decides.Load() {
			return ""
		}
		return name + " does not decide"
	}
	log, _ := logtest.NewNullLogger()
	definitions := informer.NewDefinitions(w.objects.Discovery(), v1alpha1.SchemeGroupVersion, log)
	var err error
	s.Forwarder, err = New(Options{
		Name: name, Network: &net.Dialer{}, Leads: undecided, Undecided: undecided, Client: w.objects,
		Kind:    definitions.Kind("ledgerterms"),
		Metrics: metrics.New(), Log: log, Intake: httpjson.NewIntake(64<<20,
			func(*http.Request) string { return "" }), Moved: func() { s.moved.Add(1) },
		Refuse: func(rw http.ResponseWriter, _ *http.Request, why string) {
			s.refused.Add(1)
			http.Error(rw, why, http.StatusServiceUnavailable)
		},
	})
	require.NoError(w.t, err)
	s.hold, s.probeFor = time.Minute, time.Minute // the machine may be busy
	s.servers.dialFor, s.servers.leaveAfter = time.Minute, time.Minute
	routes := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if why := undecided(); why != "" && r.URL.Path != "/own" {
			http.Error(rw, why, http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/readyz" {
			return // others ask that by themselves
		}
		s.asked.Add(1)
		(*s.serve.Load())(rw, r)
	})
	s.front = httptest.NewUnstartedServer(auth.Insecure(s.Handler(func(path string) bool { return path != "/own" },
		routes)))
	s.front.Config.WriteTimeout = w.writeTimeout
	s.front.Start()
	accept := s.Accept(routes)
	s.peer = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*s.reached.Load())(rw, r)
		accept.ServeHTTP(rw, r)
	}))
	s.peer.TLS = s.Key().ServerTLS()
	s.peer.StartTLS()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = definitions.Run(ctx); ended <- struct{}{} }()
	go func() { _ = s.Run(ctx); ended <- struct{}{} }()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		s.front.CloseClientConnections()
		s.front.Close()
		s.peer.CloseClientConnections()
		s.peer.Close()
	})
	return s
}

// echo answers with what was sent.
func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// awaitWaiting waits until so many requests wait for a leader.
func (s *server) awaitWaiting(requests int64) {
	s.w.t.Helper()
	require.Eventually(s.w.t, func() bool { return s.waiting.Load() == requests }, time.Minute, time.Millisecond)
}

// leaveAtOnce has a server end what is under way to a leader as soon as another one has followed.
func (s *server) leaveAtOnce() {
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	s.servers.leaveAfter = 0
}

func (s *server) answer(serve http.HandlerFunc) { s.serve.Store(&serve) }

func (s *server) whenReached(do http.HandlerFunc) { s.reached.Store(&do) }

// lead has a server decide in the next term, at its own address.
func (s *server) lead() {
	s.w.t.Helper()
	s.decides.Store(true)
	s.w.raise(func(spec *v1alpha1.LedgerTermSpec) {
		spec.Leader, spec.URL, spec.PublicKey = s.o.Name, s.peer.URL, s.Key().Public
	})
}

// raise begins a term.
func (w *world) raise(change func(*v1alpha1.LedgerTermSpec)) {
	w.t.Helper()
	w.objects.Edit(func(term *v1alpha1.LedgerTerm) {
		change(&term.Spec)
		term.Spec.Term++
	})
}

// upToDate waits until a server knows the newest term.
func (s *server) upToDate() {
	s.w.t.Helper()
	term := s.w.objects.Term().Spec.Term
	require.Eventually(s.w.t, func() bool {
		to, _ := s.servers.known()
		return to != nil && to.term == term
	}, time.Minute, 5*time.Millisecond)
}

// pair is a server that decides and one that passes on to it.
func pair(t testing.TB) (leader, follower *server) { return newWorld(t).pair() }

func (w *world) pair() (leader, follower *server) {
	leader, follower = w.server("leader"), w.server("follower")
	leader.lead()
	leader.knows(follower)
	return leader, follower
}

// knows waits until a server knows another, and that one it.
func (s *server) knows(other *server) {
	s.w.t.Helper()
	require.Eventually(s.w.t, func() bool {
		name, _ := s.servers.nameOf(other.Key().Public)
		to, _ := other.servers.known()
		return name == other.o.Name && (to.name == name || other.Why() == "")
	}, time.Minute, 5*time.Millisecond)
}

type reply struct {
	status int
	header http.Header
	body   string
	length int64
	closes bool
}

func (s *server) post(path, body string, header ...string) reply {
	s.w.t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.front.URL+path, strings.NewReader(body))
	require.NoError(s.w.t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	return do(s.w.t, http.DefaultClient, request)
}

func do(t testing.TB, client *http.Client, request *http.Request) reply {
	response, err := client.Do(request)
	if !assert.NoError(t, err) {
		return reply{}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	return reply{
		status: response.StatusCode, header: response.Header, body: string(content),
		length: response.ContentLength, closes: response.Close,
	}
}

// freeAddress is one where nobody listens.
func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
