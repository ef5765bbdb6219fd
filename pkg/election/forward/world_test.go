package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/follow"
	objects "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
)

// world is an API server with a LedgerTerm.
type world struct {
	t       testing.TB
	objects *objects.Clientset
	// writeTimeout is how long the servers may take for an answer that is not a stream; 0 means for ever.
	writeTimeout time.Duration
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, objects: objects.NewSimpleClientset()}
	w.objects.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "ledgerterms"}},
	}}
	refuseStale(w.objects)
	return w
}

// refuseStale has a fake API server refuse to write over a state that the writer has not read, as a real one does: else
// a server that writes its entry would take back a term that has begun meanwhile.
func refuseStale(client *objects.Clientset) {
	writes := 0
	client.PrependReactor("update", "ledgerterms", func(action clienttesting.Action) (bool, runtime.Object, error) {
		term := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.LedgerTerm)
		known, err := client.Tracker().Get(action.GetResource(), "", term.Name)
		if err != nil {
			return true, nil, err
		}
		if known.(*v1alpha1.LedgerTerm).ResourceVersion != term.ResourceVersion {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), term.Name, nil)
		}
		writes++
		term.ResourceVersion = strconv.Itoa(writes)
		return false, nil, nil // the fake does the rest
	})
}

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
	definitions := follow.NewDefinitions(w.objects.Discovery(), v1alpha1.SchemeGroupVersion, log)
	var err error
	s.Forwarder, err = New(Options{
		Name: name, Leads: undecided, Undecided: undecided, Kind: definitions.Kind("ledgerterms"), Client: w.objects,
		Observe: func(string, int, time.Duration) {}, Log: log, Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }), Moved: func() { s.moved.Add(1) },
		Refuse: func(rw http.ResponseWriter, _ *http.Request, why string) {
			s.refused.Add(1)
			http.Error(rw, why, http.StatusServiceUnavailable)
		},
	})
	require.NoError(w.t, err)
	s.hold, s.probeFor, s.servers.dialFor = time.Minute, time.Minute, time.Minute // the machine may be busy
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
	s.front = httptest.NewUnstartedServer(identity.Insecure(s.Handler(func(path string) bool { return path != "/own" }, routes)))
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
	w.edit(func(term *v1alpha1.LedgerTerm) {
		change(&term.Spec)
		term.Spec.Term++
	})
}

// edit changes the LedgerTerm, which it makes where there is none. The fake takes the status with the rest.
func (w *world) edit(change func(*v1alpha1.LedgerTerm)) {
	w.t.Helper()
	terms := w.objects.GlobalreserveV1alpha1().LedgerTerms()
	require.NoError(w.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		term, err := terms.Get(context.Background(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			term = &v1alpha1.LedgerTerm{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName}}
			change(term)
			_, err = terms.Create(context.Background(), term, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		change(term)
		_, err = terms.Update(context.Background(), term, metav1.UpdateOptions{})
		return err
	}))
}

// upToDate waits until a server knows the newest term.
func (s *server) upToDate() {
	s.w.t.Helper()
	term, err := s.w.objects.GlobalreserveV1alpha1().LedgerTerms().Get(context.Background(), v1alpha1.LedgerTermName, metav1.GetOptions{})
	require.NoError(s.w.t, err)
	require.Eventually(s.w.t, func() bool {
		to, _ := s.servers.known()
		return to != nil && to.term == term.Spec.Term
	}, 20*time.Second, 5*time.Millisecond)
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
	}, 20*time.Second, 5*time.Millisecond)
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
	return reply{status: response.StatusCode, header: response.Header, body: string(content), length: response.ContentLength}
}

// freeAddress is one where nobody listens.
func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
