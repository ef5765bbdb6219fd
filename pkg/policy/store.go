package policy

import (
	"cmp"
	"fmt"
	"slices"
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

// Scheduler returns the rules for a scheduler; nil where the policy has none.
func (p *Policy) Scheduler(name string) *Scheduler {
	at := slices.IndexFunc(p.Schedulers, func(s Scheduler) bool { return s.Name == name })
	if at < 0 {
		return nil
	}
	return &p.Schedulers[at]
}

// Lists reports whether the rules list a caller among those that may act for the scheduler.
func (s *Scheduler) Lists(caller string) bool { return s != nil && slices.Contains(s.Callers, caller) }

// Limited reports whether the rules limit what the callers use, so that only those listed may act for the scheduler.
func (s *Scheduler) Limited() bool { return s != nil && len(s.Limits) > 0 }

// LimitsCallers reports whether what callers use is limited.
func (p *Policy) LimitsCallers() bool {
	return slices.ContainsFunc(p.Schedulers, func(s Scheduler) bool { return s.Limited() })
}

// PrioritizeFor says which nodes are preferred for the pods of a scheduler.
func (p *Policy) PrioritizeFor(scheduler string) Prioritize { return p.withOwn(p.Scheduler(scheduler)) }

// withOwn returns Prioritize with what a scheduler's rules say instead.
func (p *Policy) withOwn(s *Scheduler) Prioritize {
	rules := p.Prioritize
	if s == nil || s.Prioritize == nil {
		return rules
	}
	rules.Strategy = cmp.Or(s.Prioritize.Strategy, rules.Strategy)
	if s.Prioritize.Resources != nil {
		rules.Resources = s.Prioritize.Resources
	}
	if match := s.Prioritize.ReservationMatch; match != nil {
		rules.ReservationMatch = *match
	}
	return rules
}

// ReservationTTL returns how long a reservation of scheduler lasts that asks for asked; see reservationTTL.
func (s *Store) ReservationTTL(scheduler string, asked time.Duration) (time.Duration, error) {
	return s.Current().reservationTTL(scheduler, asked, s.fallbackTTL)
}

// KeepsDeletedPods reports whether the capacity of deleted pods is kept at all.
func (s *Store) KeepsDeletedPods() bool { return s.Current().DeletedPods.Enabled }

// DeletedPodTTL returns how long the capacity of a deleted pod of a scheduler is kept that asks for asked, 0 for the
// default: that of the policy for deleted pods or, where it has none, the Store's. The default for other reservations
// has no say. asked is refused where it is more than any reservation of the scheduler, or any deleted pod, may have.
func (s *Store) DeletedPodTTL(scheduler string, asked time.Duration) (time.Duration, error) {
	rules := *s.Current()
	rules.Reservations.DefaultTTL = rules.DeletedPods.DefaultTTL
	ttl, err := rules.reservationTTL(scheduler, asked, s.fallbackTTL)
	longest := rules.DeletedPods.MaxTTL.Duration
	switch {
	case err != nil || longest == 0 || ttl <= longest:
		return ttl, err
	case asked > 0:
		return 0,
			fmt.Errorf("the reservation TTL %v is longer than the %v that the policy allows for deleted pods: ask for less",
				asked, longest)
	default:
		return longest, nil
	}
}

// reservationTTL returns how long a reservation of scheduler lasts that asks for asked. 0 asks for the default: that of
// the policy or, where it has none, fallback, and in any case no more than the maximum. Asking for more than the
// maximum is an error rather than silently made shorter: the scheduler would count on capacity that is already gone.
func (p *Policy) reservationTTL(scheduler string, asked, fallback time.Duration) (time.Duration, error) {
	limit, whose := p.Reservations.MaxTTL.Duration, "the policy allows"
	for _, s := range p.Schedulers {
		if s.Name == scheduler && s.MaxReservationTTL.Duration > 0 {
			limit, whose = s.MaxReservationTTL.Duration, "the policy allows scheduler "+scheduler
		}
	}
	unasked := min(cmp.Or(p.Reservations.DefaultTTL.Duration, fallback), limit)
	switch {
	case asked < 0:
		return 0, fmt.Errorf("the reservation TTL %v is negative: ask for up to %v, or leave it out to have %v", asked, limit,
			unasked)
	case asked > limit:
		return 0, fmt.Errorf("the reservation TTL %v is longer than the %v that %s: ask for less, or leave it out to have %v",
			asked, limit, whose, unasked)
	case asked > 0:
		return asked, nil
	default:
		return unasked, nil
	}
}
