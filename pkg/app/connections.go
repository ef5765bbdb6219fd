package app

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// spareConnections is how many connections there may be for a moment beyond those that stay.
const spareConnections = 64

// connections keeps the number of open connections within a limit. Where there are too many, the one that has waited
// for a request for the longest time is closed: a client that holds connections open keeps nobody out.
type connections struct {
	most int

	mu   sync.Mutex // guards open
	open map[net.Conn]connection
}

// connection is since when a connection is in its state.
type connection struct {
	state http.ConnState
	since time.Time
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]connection{}}
}

// follow is the server's ConnState.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	c.open[conn] = connection{state, time.Now()}
	if state == http.StateNew && len(c.open) > c.most {
		c.closeOne(conn)
	}
}

// closeOne closes a connection that waits: one that never sent anything before one that has, and the latest where there
// is no other.
func (c *connections) closeOne(latest net.Conn) {
	least := latest
	for conn, w := range c.open {
		before := c.open[least]
		sooner := w.state < before.state || w.state == before.state && w.since.Before(before.since)
		if conn != latest && w.state != http.StateActive && (least == latest || sooner) {
			least = conn
		}
	}
	c.open[least] = connection{state: http.StateActive} // until it is gone
	if secure, ok := least.(*tls.Conn); ok {
		least = secure.NetConn() // a goodbye over TLS could wait for the other side
	}
	_ = least.Close() // it is gone either way
}
