package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http takes no other logger
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// proxyStopTimeout is how long Stop waits for requests in flight to notice their end.
const proxyStopTimeout = 3 * time.Second

// FaultFunc decides what happens to a request: it holds it back by not returning, and the request is lost where it
// returns true. The connection is closed then, and the API server never sees the request. FaultFunc is called from many
// goroutines. It must not read the body.
type FaultFunc func(*http.Request) (lost bool)

// FaultProxy stands between clients and the API server and delays or loses requests on demand. A client keeps its
// identity: the proxy asks for its certificate and talks to the API server with one for the same user and groups; a
// bearer token is passed on. Clients speak HTTP/1.1 with it, so that a lost request is a closed connection.
type FaultProxy struct {
	identities *identities
	upstream   *url.URL
	listener   net.Listener
	server     *http.Server
	ctx        context.Context // ends with Stop
	cancel     context.CancelFunc
	served     chan struct{} // closed when the server's goroutine has ended
	fault      atomic.Pointer[FaultFunc]

	mu         sync.Mutex // guards transports
	transports map[string]*http.Transport
}

// StartFaultProxy starts a proxy that passes everything on until SetFault says otherwise. It ends
// with the control plane.
func (c *ControlPlane) StartFaultProxy() (*FaultProxy, error) {
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("start the fault proxy: %w", err)
	}
	p := &FaultProxy{
		identities: c.identities,
		upstream:   &url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.apiPort))},
		served:     make(chan struct{}),
		transports: map[string]*http.Transport{},
	}
	p.SetFault(nil)
	serving, err := tls.LoadX509KeyPair(c.servingCertificate(), c.servingKey())
	if err != nil {
		return nil, fmt.Errorf("load the serving certificate: %w", err)
	}
	port, err := c.ports.take()
	if err != nil {
		return nil, err
	}
	if p.listener, err = listen(port); err != nil {
		return nil, fmt.Errorf("listen for the fault proxy: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving},
			ClientCAs:    c.identities.authority.Pool(),
			ClientAuth:   tls.VerifyClientCertIfGiven,
			MinVersion:   tls.VersionTLS12,
		},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		BaseContext:       func(net.Listener) context.Context { return p.ctx },
		ReadHeaderTimeout: Patience,
		ErrorLog:          discardLog, // broken connections are its trade
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		p.cancel()
		return nil, errors.Join(errStopped, p.listener.Close())
	}
	c.proxies = append(c.proxies, p)
	go p.run()
	return p, nil
}

var discardLog = log.New(io.Discard, "", 0)

// run ends when Stop closes the listener; any other failure shows at the clients.
func (p *FaultProxy) run() {
	defer close(p.served)
	_ = p.server.ServeTLS(p.listener, "", "")
}

// SetFault changes what happens to requests from now on; nil passes everything on.
func (p *FaultProxy) SetFault(fault FaultFunc) {
	if fault == nil {
		fault = func(*http.Request) bool { return false }
	}
	p.fault.Store(&fault)
}

// URL is the address clients use in place of the API server's.
func (p *FaultProxy) URL() string { return "https://" + p.listener.Addr().String() }

// Kubeconfig is ControlPlane.Kubeconfig for a client that goes through the proxy.
func (p *FaultProxy) Kubeconfig(user string, groups ...string) (string, error) {
	return p.identities.kubeconfig(p.URL(), user, groups)
}

// RESTConfig is ControlPlane.RESTConfig for a client that goes through the proxy.
func (p *FaultProxy) RESTConfig(user string, groups ...string) *rest.Config {
	return p.identities.restConfig(p.URL(), user, groups)
}

// Stop cuts off every request in flight and closes the proxy. Stopping again does nothing.
func (p *FaultProxy) Stop() error {
	p.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), proxyStopTimeout)
	defer cancel()
	// A connection that never sent a request does not count as idle for Shutdown; Close ends it.
	err := p.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = p.server.Close()
	}
	<-p.served
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, transport := range p.transports {
		transport.CloseIdleConnections()
	}
	return err
}

// IsBinding tells whether a request binds a pod to a node: POST .../pods/NAME/binding.
func IsBinding(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/pods/") &&
		strings.HasSuffix(r.URL.Path, "/binding")
}

func (p *FaultProxy) serve(w http.ResponseWriter, r *http.Request) {
	// What has been read to its end is told when its client gives up, also while it is held back.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		closeConnection()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if (*p.fault.Load())(r) {
		closeConnection()
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(p.upstream) },
		Transport:     p.transportFor(r.TLS),
		FlushInterval: -1, // watches
		ErrorLog:      discardLog,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { closeConnection() },
	}
	proxy.ServeHTTP(w, r)
}

// closeConnection ends the request and its connection without an answer, the way net/http does it.
func closeConnection() { panic(http.ErrAbortHandler) }

// transportFor returns the way to the API server under the identity of a client's certificate.
func (p *FaultProxy) transportFor(state *tls.ConnectionState) *http.Transport {
	var user string
	var groups []string
	if state != nil && len(state.PeerCertificates) > 0 {
		subject := state.PeerCertificates[0].Subject
		user, groups = subject.CommonName, subject.Organization
	}
	key := user + "\x00" + strings.Join(groups, "\x00")
	p.mu.Lock()
	defer p.mu.Unlock()
	if transport, known := p.transports[key]; known {
		return transport
	}
	config := &tls.Config{RootCAs: p.identities.authority.Pool(), MinVersion: tls.VersionTLS12}
	if user != "" {
		config.Certificates = []tls.Certificate{p.identities.pair(user, groups)}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	p.transports[key] = transport
	return transport
}
