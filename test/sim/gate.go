package sim

import (
	"context"
	"errors"
	"sync"
)

// errDead is what becomes of everything that a process does after it was killed.
var errDead = errors.New("the process is dead")

// gate is what all that a server sends and receives passes. It is closed while the server is paused.
type gate struct {
	mu     sync.Mutex    // guards what follows
	closed chan struct{} // nil while the gate is open; closed when it opens
	dead   chan struct{} // closed when the process is killed
}

func newGate() *gate { return &gate{dead: make(chan struct{})} }

// pass returns when the gate is open, or with why it will not be.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if g.isDead() {
			return errDead
		}
		if closed == nil {
			return ctx.Err()
		}
		select {
		case <-closed:
		case <-g.dead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) isDead() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}

// shut closes the gate until open.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// kill lets nothing through any more. It is called once.
func (g *gate) kill() { close(g.dead) }
