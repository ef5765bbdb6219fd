package app

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// spareConnections is how many connections there may be for a moment beyond those that stay.
const spareConnections = 64

// connections keeps the number of open connections within a limit. Where there are too many, the one that has waited
// for a request for the longest time is closed: who holds connections open keeps nobody out.
type connections struct {
	most int

	mu   sync.Mutex // guards what follows
	open map[net.Conn]*list.Element
	// fresh have not sent a request yet, and idle have, in the order they began to wait.
	fresh, idle *list.List
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]*list.Element{}, fresh: list.New(), idle: list.New()}
}

// follow is the server's ConnState.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(conn)
	switch state {
	case http.StateNew:
		c.open[conn] = c.fresh.PushBack(conn)
		if len(c.open) > c.most {
			c.closeOne()
		}
	case http.StateIdle:
		c.open[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.open[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// leave ends that a connection waits.
func (c *connections) leave(conn net.Conn) {
	if element := c.open[conn]; element != nil {
		c.fresh.Remove(element)
		c.idle.Remove(element)
	}
}

// closeOne closes a connection that waits. One that never sent anything goes before one that has; the newest fresh
// one has just come.
func (c *connections) closeOne() {
	waiting := c.idle.Front()
	if c.fresh.Len() > 1 {
		waiting = c.fresh.Front()
	}
	if waiting == nil {
		waiting = c.fresh.Front()
	}
	conn := waiting.Value.(net.Conn)
	c.leave(conn)
	c.open[conn] = nil
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn() // a goodbye over TLS could wait for the other side
	}
	_ = conn.Close() // it is gone either way
}
