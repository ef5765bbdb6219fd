package reservations

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// Expire releases reservations at their deadline until ctx ends. Decisions never wait for it: the ledger expires what
// is due before it decides. It exists so that capacity also becomes free, and is announced, while nobody asks.
func Expire(ctx context.Context, l ledger.Observer, clock *steady.Clock, log logrus.FieldLogger) error {
	wake, unsubscribe := l.Subscribe()
	defer unsubscribe()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if deadline, ok := l.NextDeadline(); ok {
			timer.Reset(deadline.Sub(clock.Now()))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake: // the next deadline may be another one now
		case <-due:
			if n := l.Expire(clock.Now()); n > 0 {
				// What expired inside a decision is not among them: see ledger.Stats.
				log.WithField("count", n).Info("reservations expired while nobody asked")
			}
		}
	}
}
