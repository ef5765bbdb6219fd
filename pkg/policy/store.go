package policy

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Store holds the policy in force. Reading takes no lock; it is safe for concurrent use.
type Store struct {
	fallbackTTL time.Duration
	current     atomic.Pointer[Policy]
}

// NewStore begins with the policy initial. fallbackTTL is the lifetime of a reservation where
// neither its request nor the policy says; it must be positive.
func NewStore(initial *Policy, fallbackTTL time.Duration) *Store {
	s := &Store{fallbackTTL: fallbackTTL}
	s.current.Store(initial)
	return s
}

// Current returns the policy in force. It must not be changed. A caller that makes several choices
// for one request takes it once.
func (s *Store) Current() *Policy { return s.current.Load() }

// Set puts p in force; p must be valid and not be changed any more.
func (s *Store) Set(p *Policy) { s.current.Store(p) }

// ReservationTTL returns how long a reservation of scheduler lasts that asks for asked; see
// Policy.ReservationTTL.
func (s *Store) ReservationTTL(scheduler string, asked time.Duration) (time.Duration, error) {
	return s.Current().ReservationTTL(scheduler, asked, s.fallbackTTL)
}

// TTLError refuses the lifetime a reservation asked for.
type TTLError struct {
	// Asked is what was asked for.
	Asked time.Duration
	// Max is the longest allowed.
	Max time.Duration
	// Scheduler is set where the limit is that scheduler's own.
	Scheduler string
}

// Error says what may be asked for instead.
func (e *TTLError) Error() string {
	if e.Asked < 0 {
		return fmt.Sprintf("the reservation TTL %v is negative: ask for up to %v, or for 0 to get the default", e.Asked, e.Max)
	}
	whose := "the policy allows"
	if e.Scheduler != "" {
		whose = fmt.Sprintf("the policy allows scheduler %s", e.Scheduler)
	}
	return fmt.Sprintf("the reservation TTL %v is longer than the %v that %s: ask for less, or for 0 to get the default",
		e.Asked, e.Max, whose)
}

// ReservationTTL returns how long a reservation of scheduler lasts that asks for asked. 0 asks for
// the default: that of the policy or, where it has none, fallback, and in any case no more than the
// maximum. Asking for more than the maximum is a *TTLError rather than silently made shorter: the
// scheduler would count on room that is already gone.
func (p *Policy) ReservationTTL(scheduler string, asked, fallback time.Duration) (time.Duration, error) {
	limit, own := p.maxTTL(scheduler)
	if asked < 0 || asked > limit {
		err := &TTLError{Asked: asked, Max: limit}
		if own {
			err.Scheduler = scheduler
		}
		return 0, err
	}
	switch {
	case asked > 0:
		return asked, nil
	case p.Reservations.DefaultTTL.Duration > 0:
		return min(p.Reservations.DefaultTTL.Duration, limit), nil
	default:
		return min(fallback, limit), nil
	}
}

// maxTTL returns the maximum for a scheduler, and whether it is the scheduler's own.
func (p *Policy) maxTTL(scheduler string) (limit time.Duration, own bool) {
	for i := range p.Schedulers {
		if s := &p.Schedulers[i]; s.Name == scheduler && s.MaxReservationTTL.Duration > 0 {
			return s.MaxReservationTTL.Duration, true
		}
	}
	return p.Reservations.MaxTTL.Duration, false
}
