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
)

// health knows whether decisions can be made now, and tells when that changes.
type health struct {
	mirror *mirror.Mirror
	log    logrus.FieldLogger

	mu     sync.Mutex // guards what follows
	until  time.Time  // of the pause after a failed request
	why    error      // of that request
	notify []func()
}

// ready returns nil where decisions can be made, else an *UnavailableError.
func (h *health) ready() error {
	err := h.mirror.Health()
	switch {
	case errors.Is(err, mirror.ErrNotSynced):
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Starting, Cause: err}
	case errors.Is(err, mirror.ErrBehind):
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Behind, Cause: err}
	case err != nil:
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != nil && time.Now().Before(h.until) {
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: h.why}
	}
	return nil
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
	was := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := h.ready()
		switch is := err == nil; {
		case is && !was:
			h.log.WithField("revision", h.mirror.Revision()).Info("The ledger's server is there, and its mirror is up to date")
			h.tell()
			was = is
		case !is && was:
			lag, revisions := h.mirror.Lag()
			h.log.WithError(err).WithFields(logrus.Fields{"lag": lag, "revisionsBehind": revisions}).
				Warn("No decisions can be made on the ledger")
			was = is
		}
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
