package gang

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

const inMemoryInstead = `, or send "Durable": false for a reservation in memory, which ends with this server`

// reserveDurable decides a durable gang: capacity in the ledger first, then objects that
// say so, and only then the answer.
func (a *Arbiter) reserveDurable(ctx context.Context, g *Request, placements []ledger.Placement,
	screened []Refusal,
) (*Decision, error) {
	t := &gangAttempt{gang: g, placements: placements, screened: screened}
	if err := a.divide(t); err != nil {
		return nil, err
	}
	if g.DryRun {
		if err := a.allot(t); err != nil {
			return nil, err
		}
		return a.conclude(t, nil), nil
	}
	leave, busy, ok := a.writers.enter(ctx, t.keys()...)
	if !ok {
		return a.failed("reserve", g, notKnownYet(busy)), nil
	}
	w := &durableWrite{gangAttempt: t, a: a, deadline: time.Now().Add(storeTimeout), leave: leave}
	defer func() { w.leave() }()
	return w.run(ctx)
}

func notKnownYet(key types.NamespacedName) string {
	return fmt.Sprintf("nothing was reserved: another request is writing reservation %s, and it is not known yet how "+
		"that ends: try again", key)
}

// conclude makes the decision known. written are the parts that were written.
func (a *Arbiter) conclude(t *gangAttempt, written []*part) *Decision {
	d := newDecision(t.placements, t.refusals, t.revision)
	d.Durable, d.Granted = true, t.granted()
	switch {
	case d.Granted == 0:
		d.Error = d.gangError("nothing was reserved")
		for _, p := range t.parts {
			if len(a.o.Ledger.ReservationSlots(p.key.Namespace, p.key.Name)) > 0 {
				d.Error += fmt.Sprintf("; reservation %s was made before and keeps what it has", p.key)
				break
			}
		}
	case t.gang.DryRun:
		d.ExpiresAt = convert.DeadlineAfter(a.o.Ledger.Clock.Wall(), t.gang.ttl).UTC()
	default:
		d.Revision = a.o.Ledger.Revision() // that of the slots with their deadlines
		d.Held, d.ExpiresAt = held(t.placements, t.refusals), a.deadline(t, written)
		d.Reservation = t.reservation(written)
	}
	a.report("reserve", t.gang, d)
	return d
}

// deadline is when the first of the gang's capacity is given back; zero where all
// pods are bound.
func (a *Arbiter) deadline(t *gangAttempt, written []*part) (first time.Time) {
	sooner := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at.UTC()
		}
	}
	for _, p := range written {
		sooner(convert.Deadline(p.stored))
	}
	for _, key := range t.others() {
		for _, view := range a.o.Ledger.ReservationSlots(key.Namespace, key.Name) {
			sooner(a.o.Ledger.Clock.WallAt(view.Deadline))
		}
	}
	return first
}

// others are the reservations that pods of the gang had capacity in before.
func (t *gangAttempt) others() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, ref := range t.existing {
		if key := (types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// reservation names what the capacity of the gang is written in; nothing where that
// is several objects, or all pods are bound.
func (t *gangAttempt) reservation(written []*part) types.NamespacedName {
	others := t.others()
	switch {
	case len(written) == 1:
		return written[0].key
	case len(written) == 0 && len(others) == 1:
		return others[0]
	default:
		return types.NamespacedName{}
	}
}
