package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/mirror"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

const (
	// lookEvery is how often it is looked whether the server is back, or away.
	lookEvery = 50 * time.Millisecond
	// failedPause is how long after a request that found nobody no other is tried.
	failedPause = time.Second
	// startGrace is how long the server may take to be found before it counts as away.
	startGrace = 5 * time.Second
)

// available is the kind of unavailability there is none of.
const available = schedulerplugin.Unavailability(255)

// health knows whether decisions can be made now, and tells when that changes.
type health struct {
	mirror  *mirror.Mirror
	log     logrus.FieldLogger
	started time.Time

	mu     sync.Mutex // guards what follows
	found  bool       // the server has been there
	until  time.Time  // of the pause after a failed request
	why    error      // of that request
	notify []func()
}

// ready returns nil where decisions can be made, else an *UnavailableError.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.mirror.Health()
	kind := schedulerplugin.Away
	switch {
	case err == nil && (h.why == nil || time.Now().After(h.until)):
		h.found = true
		return nil
	case err == nil:
		err = h.why
	case !h.found && time.Since(h.started) < startGrace:
		kind = schedulerplugin.Starting
	case errors.Is(err, mirror.ErrBehind):
		kind = schedulerplugin.Behind
	}
	return &schedulerplugin.UnavailableError{Kind: kind, Cause: err}
}

// failed says that a request found nobody.
func (h *health) failed(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why, h.until = why, time.Now().Add(failedPause)
}

func (h *health) notifyReady(f func()) {
	h.mu.Lock()
	h.notify = append(h.notify, f)
	h.mu.Unlock()
	if h.ready() == nil {
		f()
	}
}

// run tells of every change until ctx ends.
func (h *health) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	was := schedulerplugin.Starting
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		is := available
		err := h.ready()
		if u := (*schedulerplugin.UnavailableError)(nil); errors.As(err, &u) {
			is = u.Kind
		}
		if is == was {
			continue
		}
		was = is
		if err == nil {
			h.log.WithField("revision", h.mirror.Revision()).Info("The ledger's server is there, and its mirror is up to date")
		} else {
			lag, revisions := h.mirror.Lag()
			h.log.WithError(err).WithFields(logrus.Fields{"lag": lag, "revisionsBehind": revisions}).
				Warn("No decisions can be made on the ledger")
		}
		h.tell()
	}
}

func (h *health) tell() {
	h.mu.Lock()
	notify := h.notify
	h.mu.Unlock()
	for _, f := range notify {
		f()
	}
}
