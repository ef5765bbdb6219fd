package controller

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Expirer releases reservations at their deadline. Decisions never wait for it:
// the ledger expires what is due before it decides. It exists so that room also
// becomes free, and is announced, while nobody asks.
type Expirer struct {
	ledger *ledger.Ledger
	log    logrus.FieldLogger

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewExpirer returns an Expirer that is not started.
func NewExpirer(l *ledger.Ledger, log logrus.FieldLogger) *Expirer {
	return &Expirer{ledger: l, log: log}
}

// Start runs the loop until Stop.
func (e *Expirer) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	wake, unsubscribe := e.ledger.Subscribe()
	e.done.Go(func() {
		defer unsubscribe()
		e.run(ctx, wake)
	})
}

// Stop ends the loop and waits for it.
func (e *Expirer) Stop() {
	e.cancel()
	e.done.Wait()
}

func (e *Expirer) run(ctx context.Context, wake <-chan struct{}) {
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
			return
		case <-wake: // the next deadline may be another one now
		case <-due:
			if n := e.ledger.Expire(time.Now()); n > 0 {
				// What expired inside a decision is not among them: see ledger.Stats.
				e.log.WithField("count", n).Info("reservations expired while nobody asked")
			}
		}
	}
}
