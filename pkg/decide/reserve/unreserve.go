package reserve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// Unreserve gives back what is kept for pods of a gang in memory, and in slots kept for them alone, or a whole
// reservation. Its errors are a *gates.Error with the outcome NotReady, those of the rights that are asked for, and a
// *auth.DeniedError where another caller has reserved: then nothing was given back.
func (a *Arbiter) Unreserve(ctx context.Context, g *Request) (*Decision, error) {
	if err := a.o.Ledger.Ready(); err != nil {
		return nil, err
	}
	if err := a.o.Arbiter.MayUse(ctx, g.Scheduler); err != nil {
		return nil, err
	}
	if g.Reservation.Name != "" {
		if err := a.mayReleaseObject(ctx, g, g.Reservation); err != nil {
			return nil, err
		}
		return a.unreserveWhole(ctx, g), nil
	}
	placements, held := a.toGiveBack(g)
	if err := a.mayReleasePods(ctx, g, placements, held); err != nil {
		return nil, err
	}
	result := a.o.Arbiter.ReleaseAll(placements) // without an allocation that is a success
	refusals := merge(placements, nil, result.Rejections)
	byName := func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(held), byName) {
		refusals = append(refusals, a.unreserveKept(ctx, g, key, placements, held[key])...)
	}
	slices.SortStableFunc(refusals, func(a, b Refusal) int { return cmp.Compare(a.Index, b.Index) })
	refusals = slices.CompactFunc(refusals, func(a, b Refusal) bool { return a.Index == b.Index })
	d := newDecision(placements, refusals, a.o.Ledger.Revision())
	d.Granted, d.Durable = len(placements)-len(refusals), len(held) > 0
	if len(refusals) > 0 {
		d.Error = fmt.Sprintf("%d of %d pods were not given back: %s", len(refusals), len(placements), refusals[0].Message)
	}
	a.report("unreserve", g, d)
	return d, nil
}

// heldPod is a pod, by its index in the gang, and the slot kept for it.
type heldPod struct {
	index int
	slot  ledger.Slot
}

// toGiveBack names the pods of a gang as their capacity is kept, and returns the slots of reservations that are theirs.
func (a *Arbiter) toGiveBack(g *Request) ([]ledger.Placement, map[types.NamespacedName][]heldPod) {
	placements, pods := make([]ledger.Placement, len(g.Pods)), make([]ledger.PodRef, len(g.Pods))
	for i := range g.Pods {
		pods[i] = g.Pods[i].Ref
		if pods[i].UID == "" {
			pods[i] = a.completed(pods[i])
		}
		placements[i] = ledger.Placement{Pod: pods[i], Node: g.Pods[i].Node, Scheduler: g.Scheduler, Caller: g.Caller}
	}
	held, granted := map[types.NamespacedName][]heldPod{}, a.o.ToGiveBack(pods)
	for i := range pods {
		if _, allocated := a.o.Ledger.Allocation(pods[i]); allocated {
			continue
		}
		slots := slices.DeleteFunc(granted[i], func(slot ledger.Slot) bool { // what others have reserved is not given back
			return slot.Scheduler != "" && slot.Scheduler != g.Scheduler || !ledger.MayAll(g.Caller) && slot.Caller != g.Caller
		})
		if view, ok := a.o.Ledger.SlotFor(pods[i]); ok {
			slots = append(slots, view.Slot)
		}
		for _, slot := range slots {
			key := types.NamespacedName{Namespace: slot.Ref.Namespace, Name: slot.Ref.Name}
			held[key] = append(held[key], heldPod{i, slot})
		}
	}
	return placements, held
}

// unreserveKept gives back capacity of one reservation.
func (a *Arbiter) unreserveKept(
	ctx context.Context, g *Request, key types.NamespacedName, placements []ledger.Placement, pods []heldPod,
) (refusals []Refusal) {
	var slots []string
	var mine []heldPod
	for _, p := range pods {
		r := ledger.Rejection{Pod: placements[p.index].Pod, Node: placements[p.index].Node, AllocatedOn: p.slot.Node}
		switch {
		case r.Node != "" && p.slot.Node != "" && r.Node != p.slot.Node:
			r.Reason = ledger.AllocatedElsewhere
		case p.slot.Scheduler != "" && p.slot.Scheduler != g.Scheduler:
			r.Reason = ledger.NotOwner
		default:
			slots, mine = append(slots, p.slot.Ref.Slot), append(mine, p)
			continue
		}
		refusals = append(refusals, refusedByLedger(p.index, &r))
	}
	if len(slots) == 0 {
		return refusals
	}
	slices.Sort(slots)
	slots = slices.Compact(slots) // most are granted and in the ledger, and so found twice
	if refusal := a.releaseObject(ctx, g, key, slots); refusal != nil {
		for _, p := range mine {
			r := *refusal
			r.Index, r.Rejection.Pod = p.index, placements[p.index].Pod
			r.Rejection.Node = cmp.Or(p.slot.Node, placements[p.index].Node)
			refusals = append(refusals, r)
		}
	}
	return refusals
}

// unreserveWhole gives back a reservation named by the request.
func (a *Arbiter) unreserveWhole(ctx context.Context, g *Request) *Decision {
	if refusal := a.releaseObject(ctx, g, g.Reservation, nil); refusal != nil {
		d := a.failed("unreserve", g, "nothing was given back: "+refusal.Message)
		d.Durable, d.Transient = true, refusal.transient
		return d
	}
	d := &Decision{Durable: true, Reservation: g.Reservation, Revision: a.o.Ledger.Revision()}
	a.report("unreserve", g, d)
	return d
}

// releaseObject deletes a reservation, or, where slots are named, notes in it that they are given back, and then ends
// them in the ledger. A reservation that is not there any more is a success, so that a repeat succeeds. It returns why
// the reservation was not given back.
func (a *Arbiter) releaseObject(ctx context.Context, g *Request, key types.NamespacedName, slots []string) *Refusal {
	if !a.Durable() {
		return notWritten("the cluster does not know the kind Reservation: install manifests/crd")
	}
	leave, ok := a.writers.enter(ctx, key)
	if !ok {
		return notWritten("another request is writing reservation %s, and it is not known yet how that ends: try again", key)
	}
	defer leave()
	object, err := a.o.Store.Get(a.ctx, key.Namespace, key.Name)
	switch said := apiwrite.Of(reservationsResource, err); {
	case said == apiwrite.Missing:
		a.o.Ledger.ReleaseSlots(key.Namespace, key.Name)
		return nil
	case err != nil:
		return notWritten("reservation %s could not be read: try again: %s", key, err)
	}
	refused := mayRelease(object, key, g)
	if refused != nil {
		return refused
	}
	if len(slots) > 0 && !a.areAll(key, slots) {
		err = a.o.ReleaseSlots(a.ctx, key.Namespace, key.Name, slots)
	} else if err = a.remove(object, time.Now().Add(storeTimeout), func(found *v1alpha1.Reservation) bool {
		refused = mayRelease(found, key, g)
		return refused == nil
	}); err == nil {
		a.o.Ledger.ReleaseSlots(key.Namespace, key.Name)
	}
	if err != nil && refused == nil {
		return notWritten("reservation %s could not be changed: try again: %s", key, err)
	}
	return refused
}

// errKept says that there is an object which is not to be deleted any more.
var errKept = errors.New("the object has changed, and stays")

// remove deletes an object. Its UID makes a repeated delete harmless. An object that was changed since it was read is
// read again, and stays where it is not to be deleted any more. After an error the object may still be deleted, where
// the answers were lost. pkg/reservations, which follows the objects, releases the capacity then.
func (a *Arbiter) remove(object *v1alpha1.Reservation, deadline time.Time,
	still func(*v1alpha1.Reservation) bool,
) error {
	return ignoreMissing(a.persist(deadline, func() error {
		err := a.o.Store.Delete(a.ctx, object)
		if apiwrite.Of(reservationsResource, err) != apiwrite.Conflict {
			return err
		}
		found, readErr := a.o.Store.Get(a.ctx, object.Namespace, object.Name)
		switch {
		case apiwrite.Of(reservationsResource, readErr) == apiwrite.Missing:
			return nil
		case readErr != nil:
			return err
		case found.UID != object.UID || !still(found):
			return errKept
		}
		object = found
		return err // and the next try is about what was found
	}))
}

// areAll reports whether the slots are all that is left of a reservation.
func (a *Arbiter) areAll(key types.NamespacedName, slots []string) bool {
	left := a.o.Ledger.ReservationSlots(key.Namespace, key.Name)
	return len(left) > 0 && !slices.ContainsFunc(left, func(view ledger.SlotView) bool {
		return !slices.Contains(slots, view.Ref.Slot)
	})
}

func notWritten(format string, args ...any) *Refusal {
	return &Refusal{Reason: ReasonWriteFailed, Message: fmt.Sprintf(format, args...), transient: true}
}

// mayRelease refuses what is not the scheduler's, or the caller's, to give back.
func mayRelease(object *v1alpha1.Reservation, key types.NamespacedName, g *Request) *Refusal {
	refuse := func(format string, args ...any) *Refusal {
		return &Refusal{
			Reason: ledger.NotOwner.String(), Rejection: ledger.Rejection{Reason: ledger.NotOwner},
			Message: fmt.Sprintf(format, args...),
		}
	}
	switch owner := object.Spec.SchedulerName; {
	case object.Labels[convert.MadeByLabel] != convert.MadeByReserve:
		return refuse("reservation %s was not made by /reserve: delete the object instead", key)
	case owner != "" && owner != g.Scheduler:
		return refuse("reservation %s belongs to scheduler %q; only that one may give it back", key, owner)
	case !ownedBy(object, g.Caller):
		return refuse("%s", notYours("reservation "+key.String()))
	default:
		return nil
	}
}

// completed gives a pod named without UID the one that its capacity is kept under: by
// name where it was reserved through here, else the UID the API server has.
func (a *Arbiter) completed(ref ledger.PodRef) ledger.PodRef {
	if view, ok := a.o.Ledger.Allocation(ref); ok {
		return view.Pod
	}
	if view, ok := a.o.Ledger.InMemory(ref); ok {
		return view.Pod
	}
	if info, _ := a.o.Arbiter.Watched(ref); info != nil {
		return info.Ref
	}
	return ref
}
