package reserve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

const inMemoryInstead = `, or send "Durable": false for a reservation in memory, which ends with this server`

// notOneObject returns why the pods of a gang cannot be slots of one Reservation object, which is what durable gangs
// are; empty where they can.
func (g *Request) notOneObject() string {
	if len(g.Pods) > v1alpha1.MaxSlots {
		return fmt.Sprintf("it has %d pods, and a Reservation object keeps capacity for %d at most", len(g.Pods),
			v1alpha1.MaxSlots)
	}
	for i := range g.Pods {
		if first, in := g.Pods[0].Ref.Namespace, g.Pods[i].Ref.Namespace; in != first {
			return fmt.Sprintf("its pods are of the namespaces %q and %q, and a Reservation object is for pods of one",
				first, in)
		}
	}
	return ""
}

// reserveDurable decides a durable gang: capacity in the ledger first, then an object that
// says so, and only then the answer.
func (a *Arbiter) reserveDurable(ctx context.Context, t *durableAttempt) (*Decision, error) {
	if t.gang.DryRun {
		if err := a.allot(t); err != nil {
			return nil, err
		}
		return a.conclude(t, nil), nil
	}
	leave, ok := a.writers.enter(ctx, t.key)
	if !ok {
		return nil, a.unknown(t.gang, notKnownYet(t.key))
	}
	w := &durableWrite{durableAttempt: t, a: a, deadline: time.Now().Add(storeTimeout), leave: leave}
	defer func() { w.leave() }()
	return w.run(ctx)
}

func notKnownYet(key types.NamespacedName) string {
	return fmt.Sprintf("another request is writing reservation %s, and it is not known yet how that ends: try again", key)
}

// conclude makes the decision known. written is the object that keeps the slots that were made; nil where none were.
func (a *Arbiter) conclude(t *durableAttempt, written *v1alpha1.Reservation) *Decision {
	d := newDecision(t.placements, t.refusals, t.revision)
	d.Durable, d.Granted = true, t.granted()
	switch {
	case d.Granted == 0:
		d.Error = d.errorText("nothing was reserved")
		if len(a.o.Ledger.ReservationSlots(t.key.Namespace, t.key.Name)) > 0 {
			d.Error += fmt.Sprintf("; reservation %s was made before and keeps what it has", t.key)
		}
	case t.gang.DryRun:
		d.ExpiresAt = convert.DeadlineAfter(a.o.Ledger.Clock.Wall(), t.gang.ttl).UTC()
	default:
		d.Revision = a.o.Ledger.Revision() // that of the slots with their deadlines
		d.Kept, d.ExpiresAt = kept(t.placements, t.refusals), a.deadline(t, written)
		d.Reservation = t.reservation(written != nil)
	}
	a.report("reserve", t.gang, d)
	return d
}

// deadline is when the first of the gang's capacity is given back; zero where all pods are bound.
func (a *Arbiter) deadline(t *durableAttempt, written *v1alpha1.Reservation) (first time.Time) {
	sooner := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at.UTC()
		}
	}
	if written != nil {
		sooner(convert.Deadline(written))
	}
	for _, key := range t.others() {
		for _, view := range a.o.Ledger.ReservationSlots(key.Namespace, key.Name) {
			sooner(a.o.Ledger.Clock.WallAt(view.Deadline))
		}
	}
	return first
}

// others are the reservations that pods of the gang had capacity in before.
func (t *durableAttempt) others() []types.NamespacedName {
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
func (t *durableAttempt) reservation(written bool) types.NamespacedName {
	others := t.others()
	switch {
	case written:
		return t.key
	case len(others) == 1:
		return others[0]
	default:
		return types.NamespacedName{}
	}
}
