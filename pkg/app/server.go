package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// Limits of the HTTP server. The idle timeout is longer than kube-scheduler's own (90 s), so that it is never the
// server that closes a connection the scheduler is about to use. A client that does not read its answer is cut off
// before a graceful stop would give up on it; streams set deadlines of their own.
const (
	maxConnections    = 4096 // of plain HTTP
	maxTLSConnections = 1024 // of each port of TLS, where one takes several times the memory
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 20 * time.Second
	idleTimeout       = 120 * time.Second
)

// port is where an httpServer listens.
type port struct {
	name    string // what is served there
	key     string // of the address in the log
	address string
	flag    string // where the address comes from
}

// httpServer serves a handler on an address until it is stopped.
type httpServer struct {
	port
	server   *http.Server
	network  Network
	listener net.Listener
	most     int // connections
}

// requestMemory is what the bodies of requests and answers on all ports have together, in bytes. manifests/base
// adds up what the server needs.
const requestMemory = 96 << 20

// newHTTPServer wraps the handler so that a panic in it becomes a 500 and an
// entry in the log. At most so many connections stay open.
func newHTTPServer(network Network, at port, handler http.Handler, most int, log logrus.FieldLogger) *httpServer {
	report := func(r *http.Request, value any, stack []byte) {
		log.WithFields(logrus.Fields{
			"method": r.Method, "path": httpjson.Clip(r.URL.Path), "panic": fmt.Sprint(value), "stack": string(stack),
		}).Error("a request made the server panic")
	}
	return &httpServer{
		port: at, network: network, most: most,
		server: &http.Server{
			ConnState:         newConnections(most).follow,
			Handler:           httpjson.Recover(report, handler),
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
		},
	}
}

// listen opens the port, so that a port that is taken is an error at start.
func (s *httpServer) listen() error {
	listener, err := s.network.Listen(context.Background(), "tcp", s.address)
	if err != nil {
		return fmt.Errorf("cannot serve on %s (choose another with %s): %w", s.address, s.flag, err)
	}
	s.listener = listener
	return nil
}

// run serves, over TLS if the server has a configuration for it, until ctx ends. It then lets requests under way finish
// while draining's context lasts, and cuts off the rest.
func (s *httpServer) run(ctx context.Context, draining func() context.Context) error {
	// A few more than there may be: each that comes in ends the one that is idle for the longest time.
	listener := netutil.LimitListener(s.listener, s.most+spareConnections)
	ended := make(chan error, 1)
	go func() {
		if s.server.TLSConfig != nil {
			ended <- s.server.ServeTLS(listener, "", "")
			return
		}
		ended <- s.server.Serve(listener)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := s.server.Shutdown(draining())
	if err != nil {
		_ = s.server.Close()
		err = fmt.Errorf("requests were still under way when the server had to stop: %w", err)
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// listensAt returns the address served on, with the port that was chosen.
func (s *httpServer) listensAt() string { return s.listener.Addr().String() }

// close closes the port where it has not been served on.
func (s *httpServer) close() {
	if s.listener != nil {
		_ = s.listener.Close() // an error means that it is closed already
	}
}
