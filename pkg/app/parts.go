package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// part is something that runs while the server does.
type part struct {
	name string
	// run returns when ctx has ended and all that it started has, or with why it
	// cannot go on, which ends the server.
	run func(ctx context.Context) error
}

// parts runs parts in the order they are started, and stops them in reverse. One goroutine starts and
// stops them.
type parts struct {
	failed  chan error // why a part could not go on
	running []runningPart
}

type runningPart struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    *error // of run; to be read after ended
}

func newParts() *parts { return &parts{failed: make(chan error, 1)} }

// start has parts run in the background. What they do must outlive ctx, because a
// stop still needs it; its values are kept.
func (p *parts) start(ctx context.Context, list ...part) {
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
					return // told once
				default: // another part was first
				}
			}
			*r.err = err
		}()
	}
}

// stop ends the parts one by one, the last started first, and returns what they had
// to say.
func (p *parts) stop() error {
	var errs []error
	for _, r := range slices.Backward(p.running) {
		r.cancel()
		<-r.ended
		errs = append(errs, *r.err)
	}
	return errors.Join(errs...)
}
