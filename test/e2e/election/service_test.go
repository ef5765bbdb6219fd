package election

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// lookEvery is how often a service looks which of its servers are ready.
const lookEvery = 50 * time.Millisecond

// backend is one server of a service.
type backend struct {
	address string // of one of its ports
	url     string // where it says whether it is ready
}

// service is one address for several servers, as a Service of Kubernetes is: each connection goes to one of those that
// answered a moment ago and were not stopping. A kubelet, too, takes some seconds to tell that a server is not ready.
type service struct {
	listener net.Listener
	backends []backend
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	ready   []string
	turn    int // connections so far
	refused int // connections that a server refused which was said to be ready
	open    map[net.Conn]bool
}

// newService serves until the test ends.
func newService(t *testing.T, backends []backend) *service {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &service{listener: listener, backends: backends, open: map[net.Conn]bool{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s.look(ctx)
	s.running.Go(func() {
		for ; ctx.Err() == nil; <-time.After(lookEvery) {
			s.look(ctx)
		}
	})
	s.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		s.mu.Lock()
		for conn := range s.open {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.running.Wait()
	})
	return s
}

// address is that of the service.
func (s *service) address() string { return s.listener.Addr().String() }

func (s *service) look(ctx context.Context) {
	var ready []string
	for _, b := range s.backends {
		err := controlplane.HTTPReady(b.url+"/readyz", nil)(ctx)
		if err == nil || (strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "stopping")) {
			ready = append(ready, b.address)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

// serve connects a client with a server until either of them has had enough.
func (s *service) serve(client net.Conn) {
	server := s.dial()
	if server == nil {
		_ = client.Close()
		return
	}
	s.track(true, client, server)
	var running sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.(*net.TCPConn).CloseWrite()
	}
	running.Go(func() { pass(server, client) })
	pass(client, server)
	_ = client.Close() // as the server's end has
	running.Wait()
	s.track(false, client, server)
	_ = server.Close()
}

// dial takes the servers in turn, and another one where one listens no more.
func (s *service) dial() net.Conn {
	s.mu.Lock()
	ready, first := s.ready, s.turn
	s.turn++
	s.mu.Unlock()
	for i := range ready {
		if conn, err := (&net.Dialer{Timeout: testbed.Soon}).Dial("tcp", ready[(first+i)%len(ready)]); err == nil {
			return conn
		}
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
	}
	return nil
}

func (s *service) track(open bool, conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range conns {
		if open {
			s.open[conn] = true
		} else {
			delete(s.open, conn)
		}
	}
}

// refusals is how many connections were refused so far.
func (s *service) refusals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// host is the address in a URL.
func host(url string) string {
	_, address, _ := strings.Cut(url, "://")
	address, _, _ = strings.Cut(address, "/")
	return address
}
