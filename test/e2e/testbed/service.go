package testbed

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// lookEvery is how often a service looks which of its servers are ready, and lookTimeout how long it waits for an
// answer. dialTimeout is long: a server on this machine connects or refuses at once, and a pause of the test is no
// refusal.
const (
	lookEvery   = 50 * time.Millisecond
	lookTimeout = time.Second
	dialTimeout = 10 * time.Second
	// mostMissed is how many answers one after another do not come before a server is not ready.
	mostMissed = 3
)

// Backend is one server of a Service.
type Backend struct {
	Address string // of one of its ports
	URL     string // where it says whether it is ready
}

// Service is one address for several servers, as a Service of Kubernetes is: each connection goes to one of those that
// answered a moment ago and were not stopping. A kubelet, too, takes some seconds to tell that a server is not ready.
type Service struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex     // guards what follows
	ready  []string       // addresses
	turn   int            // of the server that the next connection goes to
	missed map[string]int // answers one after another that did not come in time, by address
	open   map[net.Conn]bool
}

// NewService serves until the test ends.
func NewService(t testing.TB, backends []Backend) *Service {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &Service{listener: listener, missed: map[string]int{}, open: map[net.Conn]bool{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, b := range backends {
		s.look(ctx, b)
		s.running.Go(func() { // beside the others: one that hangs keeps nobody from being looked at
			for ; ctx.Err() == nil; <-time.After(lookEvery) {
				s.look(ctx, b)
			}
		})
	}
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

// Address is that of the service.
func (s *Service) Address() string { return s.listener.Addr().String() }

// look finds out whether a server is ready. One answer that does not come in time changes nothing, as for a kubelet.
func (s *Service) look(ctx context.Context, b Backend) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := controlplane.HTTPReady(b.URL+"/readyz", nil)(ctx)
	late := errors.Is(err, context.DeadlineExceeded)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !late {
		s.missed[b.Address] = 0
	} else if s.missed[b.Address]++; s.missed[b.Address] < mostMissed {
		return
	}
	s.ready = slices.DeleteFunc(slices.Clone(s.ready), func(address string) bool { return address == b.Address })
	if err == nil || (strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "stopping")) {
		s.ready = append(s.ready, b.Address)
	}
}

// serve connects a client with a server until either of them has had enough.
func (s *Service) serve(client net.Conn) {
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

// dial takes the servers by turns, and the next one where one listens no more.
func (s *Service) dial() net.Conn {
	s.mu.Lock()
	ready := s.ready
	first := s.turn
	s.turn++
	s.mu.Unlock()
	for i := range ready {
		address := ready[(first+i)%len(ready)]
		if conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", address); err == nil {
			return conn
		}
	}
	return nil
}

func (s *Service) track(open bool, conns ...net.Conn) {
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

// Host is the address in a URL.
func Host(url string) string {
	_, address, _ := strings.Cut(url, "://")
	address, _, _ = strings.Cut(address, "/")
	return address
}
