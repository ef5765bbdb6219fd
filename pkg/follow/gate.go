package follow

import (
	"context"
	"sync"
)

// Gate is closed until it is opened, and open from then on. Make it with NewGate.
type Gate struct {
	once   sync.Once
	opened chan struct{}
}

// NewGate returns a Gate that is closed.
func NewGate() *Gate { return &Gate{opened: make(chan struct{})} }

// Open opens the gate.
func (g *Gate) Open() { g.once.Do(func() { close(g.opened) }) }

// IsOpen reports whether the gate was opened.
func (g *Gate) IsOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// Wait returns nil when the gate is open, or the error of ctx.
func (g *Gate) Wait(ctx context.Context) error {
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
