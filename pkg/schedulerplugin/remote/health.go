package remote

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/globalreserve/globalreserve/pkg/mirror"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

const (
	// failedPause is how long after a request that found nobody no other is tried.
	failedPause = time.Second
	// startGrace is how long the server may take to be found before it counts as away.
	startGrace = 5 * time.Second
)

// health knows whether decisions can be made now.
type health struct {
	mirror  *mirror.Mirror
	clock   clock.PassiveClock
	started time.Time
	classes atomic.Bool // DeviceClasses have been read: before, pods would be refused what these leave to DRA

	asking sync.Mutex // so that one asks for a sign of life at a time

	mu    sync.Mutex // guards what follows
	found bool       // the server has been there
	until time.Time  // of the pause after a failed request
	why   error      // of that request; nil where the server has answered since
	last  time.Time  // when it has answered
}

// ready returns nil where decisions can be made, else an *UnavailableError.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.mirror.Health()
	kind := schedulerplugin.Away
	switch {
	case err == nil && !h.classes.Load():
		kind, err = schedulerplugin.Starting, errors.New("DeviceClasses have not been read yet")
	case err == nil && (h.why == nil || h.clock.Now().After(h.until)):
		h.found = true
		return nil
	case err == nil:
		err = h.why
	case !h.found && h.clock.Since(h.started) < startGrace:
		kind = schedulerplugin.Starting
	case errors.Is(err, mirror.ErrBehind):
		kind = schedulerplugin.Behind
	case errors.As(err, new(*reserver.UnauthorizedError)):
		kind = schedulerplugin.Denied
	}
	return &schedulerplugin.UnavailableError{Kind: kind, Cause: err}
}

// failed says that a request found nobody.
func (h *health) failed(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why, h.until = why, h.clock.Now().Add(failedPause)
}

// heard says that the server has answered.
func (h *health) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.why = h.clock.Now(), nil
}

// trust returns nil where the last request has found the server, or the server gives a sign of life.
func (h *health) trust(ctx context.Context, alive func(context.Context) error) error {
	h.mu.Lock()
	sound := h.why == nil
	h.mu.Unlock()
	if sound {
		return nil
	}
	return h.ask(ctx, alive)
}

// since returns nil where the server has answered anything since a moment, or gives a sign of life.
func (h *health) since(ctx context.Context, at time.Time, alive func(context.Context) error) error {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	heard, why, until := h.last.After(at), h.why, h.until
	h.mu.Unlock()
	switch {
	case heard:
		return nil
	case why != nil && h.clock.Now().Before(until):
		return why // somebody has asked just before
	default:
		return h.ask(ctx, alive)
	}
}

// ask asks the server for a sign of life.
func (h *health) ask(ctx context.Context, alive func(context.Context) error) error {
	if err := alive(ctx); err != nil {
		h.failed(err)
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	}
	h.heard()
	return nil
}
