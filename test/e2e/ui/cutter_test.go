//go:build e2e

package ui

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutter is between a browser and a server, and cuts their connections.
type cutter struct {
	listener net.Listener
	server   string
	running  sync.WaitGroup

	mu   sync.Mutex // guards what follows
	off  bool
	open map[net.Conn]bool
}

func newCutter(t *testing.T, server string) *cutter {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{listener: listener, server: server, open: map[net.Conn]bool{}}
	c.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.connect(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
		c.running.Wait()
	})
	return c
}

// Address is where the browser goes.
func (c *cutter) Address() string { return c.listener.Addr().String() }

// cut ends all connections, and lets no new ones through until mend.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	for conn := range c.open {
		_ = conn.Close()
	}
}

func (c *cutter) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = false
}

// keep takes down connections, and reports whether they may be used.
func (c *cutter) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		c.open[conn] = true
	}
	return !c.off
}

func (c *cutter) forget(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		delete(c.open, conn)
		_ = conn.Close()
	}
}

func (c *cutter) connect(client net.Conn) {
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		_ = client.Close()
		return
	}
	defer c.forget(client, server)
	if !c.keep(client, server) {
		return
	}
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	done.Wait()
}
