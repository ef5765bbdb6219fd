package informer

import (
	"context"
	"sync"
)

// Latch is closed until it is opened, and open from then on. Make it with NewLatch.
type Latch struct {
	once   sync.Once
	opened chan struct{}
}

// NewLatch returns a Latch that is closed.
func NewLatch() *Latch { return &Latch{opened: make(chan struct{})} }

// Open opens the latch.
func (g *Latch) Open() { g.once.Do(func() { close(g.opened) }) }

// IsOpen reports whether the latch was opened.
func (g *Latch) IsOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// Wait returns nil when the latch is open, or the error of ctx.
func (g *Latch) Wait(ctx context.Context) error {
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
