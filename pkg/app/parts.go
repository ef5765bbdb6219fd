package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// part is something that runs while the server does.
type part struct {
	name string
	// run returns when ctx has ended and all that it started has, or with why it cannot go on, which ends the server.
	run func(ctx context.Context) error
}

// parts runs parts in the order they are started, and stops them in reverse. One goroutine starts and stops them.
type parts struct {
	failed chan error // why a part could not go on

	mu      sync.Mutex // guards what follows
	running []runningPart
	stopped bool
}

type runningPart struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    *error // of run; to be read after ended
}

func newParts() *parts { return &parts{failed: make(chan error, 1)} }

// start runs parts in the background, unless they have been stopped. What they do must outlive ctx, because a
// stop still needs it; its values are kept.
func (p *parts) start(ctx context.Context, list ...part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	for _, one := range list {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := runningPart{cancel: cancel, ended: make(chan struct{}), err: new(error)}
		p.running = append(p.running, r)
		go func() {
			defer close(r.ended)
			err := one.run(ctx)
			if err == nil {
				return
			}
			err = fmt.Errorf("%s: %w", one.name, err)
			if ctx.Err() == nil {
				select {
				case p.failed <- err:
					return // reported once
				default: // another part was first
				}
			}
			*r.err = err
		}()
	}
}

// stop ends the parts one by one, the last started first, and returns their errors,
// but for one that was sent to failed.
func (p *parts) stop() error {
	p.mu.Lock()
	running := p.running
	p.running, p.stopped = nil, true
	p.mu.Unlock()
	var errs []error
	for _, r := range slices.Backward(running) {
		r.cancel()
		<-r.ended
		errs = append(errs, *r.err)
	}
	return errors.Join(errs...)
}
