package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// ServerHeader names, in an answer, the server that decided.
const ServerHeader = "X-GlobalReserve-Server"

// notDoneHeader is on answers of the peer listener to requests that it has not looked at.
const notDoneHeader = "X-GlobalReserve-Not-Done"

const (
	// maxHold is how long a request waits for a leader, and maxWaiting how many do. Clients wait for an answer
	// for some seconds at least.
	maxHold    = 3 * time.Second
	maxWaiting = 1000
	maxBody    = 32 << 20 // of the integration path that takes the longest
	// probeEvery is how often a follower asks whether the leader decides, and probeTimeout how long it waits.
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
)

// Dialer makes connections, as a net.Dialer does.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options are what a Forwarder works with. All are required.
type Options struct {
	// Name is this server's in the election.
	Name string
	// Leads returns "" while this server holds the Lease and has taken over, Undecided while it decides; else
	// why it does not.
	Leads, Undecided func() string
	// Moved is called when the LedgerTerm has another term than was known, or is gone. It must not block.
	Moved func()
	// Network is how other servers are reached.
	Network Dialer
	// Kind is that of the LedgerTerm.
	Kind   *informer.Kind
	Client versioned.Interface
	// Metrics count the requests that this server does not answer alone.
	Metrics *metrics.Metrics
	// Refuse answers a request where it is not known what was done.
	Refuse func(w http.ResponseWriter, r *http.Request, why string)
	Intake *httpjson.Intake
	Log    logrus.FieldLogger
}

// Forwarder passes requests on to the server that decides. Make one with New.
type Forwarder struct {
	o       Options
	key     *Key
	servers *servers
	waiting atomic.Int64 // requests
	// hold and probeFor are maxHold and probeTimeout, but for tests.
	hold, probeFor time.Duration
	// held and unknown count the requests that have waited for a leader, and those that no answer came to.
	held, unknown atomic.Int64

	// leaving ends when this server decides no more requests.
	leaving context.Context
	leave   context.CancelFunc

	mu    sync.Mutex    // guards what follows
	local int           // requests that this server decides
	idle  chan struct{} // closed when it is leaving and decides none
}

// New returns a Forwarder that knows no other servers until it runs.
func New(o Options) (*Forwarder, error) {
	key, err := newKey(o.Name)
	if err != nil {
		return nil, err
	}
	f := &Forwarder{
		o: o, key: key, hold: maxHold, probeFor: probeTimeout, idle: make(chan struct{}),
	}
	f.servers = newServers(&f.o, key)
	f.leaving, f.leave = context.WithCancel(context.Background())
	return f, nil
}

// HandOver makes this server decide no request that comes from now on: those wait for the next leader. Streams end. It
// returns when the requests under way are answered, or ctx ends. It is called once.
func (f *Forwarder) HandOver(ctx context.Context) error {
	f.mu.Lock()
	f.leave()
	if f.local == 0 {
		close(f.idle)
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests were still under way when the server had to stop: %w", ctx.Err())
	}
}

// undecided returns "" while this server decides requests, else why it does not.
func (f *Forwarder) undecided() string {
	if f.isLeaving() {
		return "the server is stopping; ask again in a moment"
	}
	return f.o.Undecided()
}

func (f *Forwarder) isLeaving() bool { return f.leaving.Err() != nil }

// enter returns "" where this server decides one more request, until exit is called, else why it does not.
func (f *Forwarder) enter() (why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why = f.undecided(); why == "" {
		f.local++
	}
	return why
}

func (f *Forwarder) exit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local--; f.isLeaving() && f.local == 0 {
		close(f.idle)
	}
}

// decide serves a request if this server decides, and reports whether it did.
func (f *Forwarder) decide(w http.ResponseWriter, r *http.Request, local http.Handler) bool {
	if f.enter() != "" {
		return false
	}
	defer f.exit()
	w.Header().Set(ServerHeader, f.o.Name)
	local.ServeHTTP(w, r)
	return true
}

// Run follows who leads until ctx ends, and announces this server to the others.
func (f *Forwarder) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.probe(ctx) })
	return f.servers.run(ctx)
}

// probe keeps finding out whether the leader can be asked, so that it is known before somebody asks: the one that
// the LedgerTerm names may be gone.
func (f *Forwarder) probe(ctx context.Context) {
	for ctx.Err() == nil {
		to, changed := f.servers.known()
		if f.undecided() != "" {
			f.ask(ctx, to)
		}
		select {
		case <-changed:
		case <-time.After(probeEvery):
		case <-ctx.Done():
		}
	}
}

// ask asks a leader whether it decides, and records the outcome.
func (f *Forwarder) ask(ctx context.Context, to *leader) {
	ctx, cancel := context.WithTimeout(ctx, f.probeFor)
	defer cancel()
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody)
	if err != nil {
		return
	}
	response, err := f.try(to, question, nil)
	if err == nil {
		_ = response.Body.Close()
	} else if to != nil && !errors.Is(err, errNobody) {
		to.tried(err)
	}
}

// Held is how many requests have waited for a server that decides.
func (f *Forwarder) Held() float64 { return float64(f.held.Load()) }

// Unknown is how many requests were passed on and got no answer, so that it is not known what was done.
func (f *Forwarder) Unknown() float64 { return float64(f.unknown.Load()) }

// Key is what the peer listener shows.
func (f *Forwarder) Key() *Key { return f.key }

// StandBy reports whether another server has renewed its entry lately.
func (f *Forwarder) StandBy() bool { return f.servers.standBy() }

// Watch returns the watch of the kind that says who decides.
func (f *Forwarder) Watch() *informer.Watch { return f.servers.watch }

// Why says why requests cannot be passed on, as far as is known; "" where they can.
func (f *Forwarder) Why() string {
	to, _ := f.servers.known()
	if to == nil {
		const why = "it is not known where another server can be reached: "
		return strings.TrimSuffix(why+f.servers.watch.Lack(), ": ")
	}
	if to.name == f.o.Name {
		return "this server is to decide itself"
	}
	if _, failure := to.why(); failure != nil {
		return fmt.Sprintf("server %s cannot be asked: %v", to.name, failure)
	}
	if name, ok := f.servers.nameOf(f.key.Public); !ok || name != f.o.Name {
		return "the other servers do not know this one yet"
	}
	return ""
}

// Accept is the handler of the peer listener.
func (f *Forwarder) Accept(next http.Handler) http.Handler {
	next = f.Decided(auth.Forwarded(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.fromServer(r) {
			w.Header().Set(notDoneHeader, "true")
			w.Header().Set("Connection", "close") // strangers could take all connections there may be
			httpjson.WriteError(w, httpjson.Errorf(http.StatusForbidden,
				"this port is for servers of GlobalReserve that the LedgerTerm lists"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Decided serves a request if this server decides. Another one is refused, and is not passed on.
func (f *Forwarder) Decided(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := f.enter(); why != "" {
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody)) // or the other side may not read the answer
			w.Header().Set(notDoneHeader, "true")
			w.Header().Set("Retry-After", "1")
			httpjson.WriteError(w, httpjson.Errorf(http.StatusServiceUnavailable, "%s", why))
			return
		}
		defer f.exit()
		w.Header().Set(ServerHeader, f.o.Name)
		next.ServeHTTP(w, r)
	})
}

// fromServer reports whether a request comes from a server that counts now. A connection may be older.
func (f *Forwarder) fromServer(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	_, ok := f.servers.nameOf(publicKey(r.TLS.PeerCertificates[0]))
	return ok
}

// Handler passes requests on while this server does not decide, with the caller that is known by then, if passes
// returns true for their path. local serves the others, and those that no server decides in time.
func (f *Forwarder) Handler(passes func(path string) bool, local http.Handler) http.Handler {
	remote := httpjson.Handle("forward", f.o.Metrics.ObserveRequest, func(w http.ResponseWriter, r *http.Request) error {
		return f.forward(w, r, local)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !passes(r.URL.Path):
			local.ServeHTTP(w, r)
		case !f.decide(w, r, local):
			remote.ServeHTTP(w, r)
		}
	})
}

// errNobody is why a request was not passed on, and nothing was done: it is for this server to answer.
var errNobody = errors.New("no other server decides")

// errLeft is why a request was not passed on: its client did not wait for a leader.
var errLeft = errors.New("the client is gone")

func (f *Forwarder) forward(w http.ResponseWriter, r *http.Request, local http.Handler) error {
	body, release, err := f.o.Intake.Body(w, r, maxBody)
	defer release()
	if err != nil {
		return err
	}
	writer := &streamWriter{ResponseWriter: w}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			auth.Tell(p.In.Context(), p.Out)
			p.Out.URL.RawQuery = p.In.URL.RawQuery // the other server refuses a malformed one
			// The body is here already. And a transport would send a request with a key of idempotence again.
			for _, name := range []string{"Expect", "Idempotency-Key", "X-Idempotency-Key"} {
				p.Out.Header.Del(name)
			}
		},
		Transport: roundTripper(func(out *http.Request) (*http.Response, error) { return f.send(out, body, f.holdOf(r)) }),
		ModifyResponse: func(response *http.Response) error {
			if writer.streams = isStream(response.Header.Get("Content-Type")); writer.streams {
				response.Body = endWith(f.leaving, response.Body)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errNobody) {
				if again := withBody(r, body); !f.decide(w, again, local) { // it may do so by now
					w.Header().Set("Connection", "close") // another server may know a leader
					local.ServeHTTP(w, again)
				}
				return
			}
			if !errors.Is(err, errLeft) { // else nobody reads the answer
				f.unknown.Add(1)
				f.o.Log.WithError(err).WithField("path", httpjson.Clip(r.URL.Path)).
					Warn("no answer came to a request that was passed on")
			}
			f.o.Refuse(w, r, "the outcome is unknown, because the server that decides did not answer: ask again")
		},
	}
	r.Body = http.NoBody
	proxy.ServeHTTP(writer, r)
	return nil
}

// isStream reports whether an answer of a kind goes on until somebody ends it: that to GET /v1/watch.
func isStream(contentType string) bool { return contentType == reserver.BatchMediaType }

// holdOf is how long a request may wait for a leader: an API server says how long it waits for a webhook.
func (f *Forwarder) holdOf(r *http.Request) time.Duration {
	if limit, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil {
		return min(f.hold, limit/2)
	}
	return f.hold
}

// send returns the answer of the server that decides, and waits for such a server. It does not send a request again
// where it is not known what was done.
func (f *Forwarder) send(out *http.Request, body []byte, hold time.Duration) (*http.Response, error) {
	end := time.NewTimer(hold)
	defer end.Stop()
	waits := false
	defer func() {
		if waits {
			f.waiting.Add(-1)
		}
	}()
	for {
		if f.undecided() == "" || (f.isLeaving() && !f.servers.others()) {
			return nil, errNobody
		}
		to, changed := f.servers.known()
		response, err := f.try(to, out, body)
		if err == nil || !errors.Is(err, errNobody) {
			return response, err
		}
		if !waits {
			waits = true
			f.held.Add(1)
			if f.waiting.Add(1) > maxWaiting {
				return nil, errNobody
			}
		}
		select {
		case <-changed:
		case <-time.After(askAfter):
		case <-end.C:
			return nil, errNobody
		case <-out.Context().Done():
			return nil, errLeft
		}
	}
}

// try sends a request to a leader. errNobody says that the leader has done nothing.
func (f *Forwarder) try(to *leader, out *http.Request, body []byte) (*http.Response, error) {
	if to == nil || to.name == f.o.Name {
		return nil, errNobody
	}
	if rest, _ := to.why(); rest {
		f.servers.doubt()
		return nil, errNobody
	}
	response, err := to.send(out, body)
	var unsent *dialError
	switch {
	case errors.As(err, &unsent):
		to.tried(unsent)
	case err != nil:
		return nil, fmt.Errorf("asking server %s: %w", to.name, err)
	case response.Header.Get(notDoneHeader) == "":
		to.tried(nil)
		return response, nil
	default:
		_ = response.Body.Close()
		to.tried(fmt.Errorf("it answers %s", response.Status))
	}
	f.servers.doubt()
	return nil, errNobody
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
