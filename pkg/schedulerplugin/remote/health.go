package remote

import (
	"errors"
	"sync"
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

	mu    sync.Mutex // guards what follows
	found bool       // the server has been there
	until time.Time  // of the pause after a failed request
	why   error      // of that request
}

// ready returns nil where decisions can be made, else an *UnavailableError.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.mirror.Health()
	kind := schedulerplugin.Away
	switch {
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
