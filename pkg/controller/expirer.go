package controller

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Expirer releases reservations at their deadline. Decisions never wait for it:
// the ledger expires what is due before it decides. It exists so that capacity also
// becomes free, and is announced, while nobody asks.
type Expirer struct {
	ledger ledger.Observer
	log    logrus.FieldLogger
}

// NewExpirer returns an Expirer that is not running.
func NewExpirer(l ledger.Observer, log logrus.FieldLogger) *Expirer {
	return &Expirer{ledger: l, log: log}
}

// Run releases what is due until ctx ends.
func (e *Expirer) Run(ctx context.Context) error {
	wake, unsubscribe := e.ledger.Subscribe()
	defer unsubscribe()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if deadline, ok := e.ledger.NextDeadline(); ok {
			timer.Reset(time.Until(deadline))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake: // the next deadline may be another one now
		case <-due:
			if n := e.ledger.Expire(time.Now()); n > 0 {
				// What expired inside a decision is not among them: see ledger.Stats.
				e.log.WithField("count", n).Info("reservations expired while nobody asked")
			}
		}
	}
}
