package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// network connects the servers of a cluster with each other. Addresses are those of loopback.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	port      int // the latest that was chosen
}

func newNetwork() *network { return &network{listeners: map[string]*listener{}, port: 10000} }

// host is the network as one server has it. It implements app.Network.
type host struct {
	*network
	gate *gate

	// What follows is guarded by the network's lock.
	isCut   bool    // from all others
	ends    []*conn // of its connections
	random  *rand.Rand
	trouble int // of how many of ten thousand pieces that are sent the connection ends
}

// Listen opens a port, or any port where that is 0.
func (h *host) Listen(_ context.Context, _, address string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.Port == 0 {
		h.port++
		at.Port = h.port
	}
	if h.listeners[at.String()] != nil {
		return nil, fmt.Errorf("%s is in use", at)
	}
	l := &listener{host: h, at: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	h.listeners[at.String()] = l
	return l, nil
}

// vanish closes the ports of a process that is dead.
func (h *host) vanish() {
	h.mu.Lock()
	var own []*listener
	for _, l := range h.listeners {
		if l.host == h {
			own = append(own, l)
		}
	}
	h.mu.Unlock()
	for _, l := range own {
		_ = l.Close() // it may be closed already
	}
}

// DialContext connects this server with the one that listens on an address.
func (h *host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	h.mu.Lock()
	l := h.listeners[address]
	if l == nil || h.isCut || l.host.isCut {
		h.mu.Unlock()
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	one, other := net.Pipe()
	here, there := newConn(one, &net.TCPAddr{IP: l.at.IP}, h), newConn(other, l.at, l.host)
	h.ends, l.host.ends = append(h.ends, here), append(l.host.ends, there)
	h.mu.Unlock()
	var err error
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		err = fmt.Errorf("%s: connection refused", address)
	case <-ctx.Done():
		err = ctx.Err()
	}
	_, _ = here.Close(), there.Close() // they were not used
	return nil, err
}

func (h *host) setTrouble(trouble int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = trouble
}

// breaks draws whether a connection ends.
func (h *host) breaks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(10000) < h.trouble
}

// cutOff ends all connections with others, and has none made until it is called again.
func (h *host) cutOff(isCut bool) {
	h.mu.Lock()
	ends := h.ends
	h.isCut, h.ends = isCut, nil
	h.mu.Unlock()
	for _, c := range ends {
		_ = c.Close() // it may be closed already
	}
}

type listener struct {
	host   *host
	at     *net.TCPAddr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.at }

func (l *listener) Close() error {
	err := errors.New("closed already")
	l.once.Do(func() {
		err = nil
		close(l.closed)
		l.host.mu.Lock()
		defer l.host.mu.Unlock()
		delete(l.host.listeners, l.at.String())
	})
	return err
}

// conn is one end of a connection. What arrives there while its process is paused is read later. Write never waits:
// kernels buffer, and who writes may hold a lock that testing/synctest does not know to be waited for.
type conn struct {
	net.Conn
	at   *net.TCPAddr
	host *host

	mu     sync.Mutex // guards what follows
	buffer []byte
	closed bool
	more   chan struct{} // has room for one
}

func newConn(pipe net.Conn, at *net.TCPAddr, h *host) *conn {
	c := &conn{Conn: pipe, at: at, host: h, more: make(chan struct{}, 1)}
	go c.send()
	return c
}

// send hands over what was written until the connection is closed.
func (c *conn) send() {
	for range c.more {
		c.mu.Lock()
		p, closed := c.buffer, c.closed
		c.buffer = nil
		c.mu.Unlock()
		_, err := c.Conn.Write(p)
		if closed || err != nil {
			_ = c.Conn.Close() // an error means that the other side was first
			return
		}
	}
}

func (c *conn) LocalAddr() net.Addr { return c.at }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if gone := c.host.gate.pass(context.Background()); gone != nil {
		return 0, gone
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.host.gate.isDead() {
		return 0, net.ErrClosed
	}
	c.buffer = append(c.buffer, p...)
	if c.host.breaks() { // after it has arrived
		return len(p), c.end()
	}
	c.wake()
	return len(p), nil
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return c.end()
}

// end is called under the lock. It ends the connection when what was written has arrived.
func (c *conn) end() error {
	c.closed = true
	c.wake()
	return c.Conn.SetReadDeadline(time.Unix(1, 0)) // this side reads no more
}

// wake is called under the lock.
func (c *conn) wake() {
	select {
	case c.more <- struct{}{}:
	default: // send has not looked since
	}
}
