package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// unreserveGroup decides an /unreserve. Pods with a claim are given back in the
// ledger, those with a hold of their own in its object as well.
func (a *API) unreserveGroup(ctx context.Context, g *group) (outcome, error) {
	if g.reservation.Name != "" {
		return a.unreserveWhole(ctx, g), nil
	}
	placements := make([]ledger.Placement, len(g.pods))
	var inMemory []ledger.Placement
	held := map[types.NamespacedName][]heldPod{}
	for i := range g.pods {
		ref := g.pods[i].ref
		if ref.UID == "" {
			ref = a.claimedRef(ref)
		}
		placements[i] = ledger.Placement{Pod: ref, Node: g.node(i), Scheduler: g.scheduler}
		claim, claimed := a.ledger.Claim(ref)
		if view, ok := a.ledger.HoldFor(ref); ok && (!claimed || claim.State == ledger.Reserved) {
			key := types.NamespacedName{Namespace: view.Ref.Namespace, Name: view.Ref.Name}
			held[key] = append(held[key], heldPod{i, view})
		}
		inMemory = append(inMemory, placements[i]) // without a claim that is a success
	}
	result := a.ledger.Unreserve(inMemory)
	refusals := merge(placements, nil, result.Rejections)
	transient := false
	for _, key := range sortedKeys(held) {
		more, again := a.unreserveHeld(ctx, g, key, placements, held[key])
		refusals, transient = append(refusals, more...), transient || again
	}
	slices.SortStableFunc(refusals, func(a, b refusal) int { return cmp.Compare(a.index, b.index) })
	refusals = slices.CompactFunc(refusals, func(a, b refusal) bool { return a.index == b.index })
	out := outcome{answer: newGroupAnswer(refusals, a.ledger.Revision()), transient: transient}
	if len(refusals) > 0 {
		out.answer.Error = fmt.Sprintf("%d of %d pods were not given back: %s",
			len(refusals), len(placements), refusals[0].message)
	}
	a.report(g, placements, refusals, len(placements)-len(refusals), &out)
	return out, nil
}

// heldPod is a pod, by its index in the request, and the hold kept for it.
type heldPod struct {
	index int
	view  ledger.HoldView
}

func sortedKeys(held map[types.NamespacedName][]heldPod) []types.NamespacedName {
	keys := make([]types.NamespacedName, 0, len(held))
	for key := range held {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// unreserveHeld gives back room of one reservation. transient tells that the
// next try may end otherwise.
func (a *API) unreserveHeld(
	ctx context.Context, g *group, key types.NamespacedName, placements []ledger.Placement, pods []heldPod,
) (refusals []refusal, transient bool) {
	var slots []string
	var mine []heldPod
	for _, p := range pods {
		r := ledger.Rejection{Pod: placements[p.index].Pod, Node: placements[p.index].Node, ClaimedOn: p.view.Node}
		switch {
		case r.Node != "" && r.Node != p.view.Node:
			r.Reason = ledger.ClaimedElsewhere
		case p.view.Scheduler != "" && p.view.Scheduler != g.scheduler:
			r.Reason = ledger.NotOwner
		default:
			slots, mine = append(slots, p.view.Ref.Slot), append(mine, p)
			continue
		}
		refusals = append(refusals, refusal{Rejection: r, index: p.index, message: r.Message()})
	}
	if len(slots) == 0 {
		return refusals, false
	}
	if len(slots) == len(a.ledger.ReservationHolds(key.Namespace, key.Name)) {
		slots = nil // all that is left
	}
	if err := a.giveBack(ctx, key, g.scheduler, slots); err != nil {
		for _, p := range mine {
			r := ledger.Rejection{Pod: placements[p.index].Pod, Node: p.view.Node, Reason: err.reason}
			refusals = append(refusals, refusal{Rejection: r, index: p.index, message: err.message})
		}
		return refusals, err.transient
	}
	return refusals, false
}

// unreserveWhole gives back a reservation named by the request.
func (a *API) unreserveWhole(ctx context.Context, g *group) outcome {
	out := outcome{answer: reserver.Answer{FailedPods: []string{}}}
	if err := a.giveBack(ctx, g.reservation, g.scheduler, nil); err != nil {
		out = a.failed(g, "nothing was given back: "+err.message)
		out.transient = err.transient
	} else {
		out.answer.Reservation = g.reservation.String()
		out.answer.Revision = a.ledger.Revision()
		a.report(g, nil, nil, 0, &out)
	}
	return out
}

// giveBackError says why room of a reservation was not given back.
type giveBackError struct {
	reason    ledger.Reason // Fits where it is none of the ledger's
	message   string
	transient bool
}

// giveBack deletes a reservation, or, where slots are named, notes in it that
// they are given back, and then ends the holds. One that is not there any more
// is a success, so that a repeat is one.
func (a *API) giveBack(ctx context.Context, key types.NamespacedName, scheduler string, slots []string) *giveBackError {
	if !a.durableByDefault() {
		return &giveBackError{message: "the cluster does not know the kind Reservation: install manifests/crd", transient: true}
	}
	leave, ok := a.writes.enter(ctx, key)
	if !ok {
		return &giveBackError{transient: true, message: fmt.Sprintf(
			"another request is writing reservation %s, and it is not known yet how that ends: try again", key)}
	}
	defer leave()
	object, err := a.store.Get(a.writes.ctx, key.Namespace, key.Name)
	switch said := store.Classify(err); {
	case said == store.Missing:
		a.ledger.ReleaseHolds(key.Namespace, key.Name)
		return nil
	case err != nil:
		return &giveBackError{transient: true, message: fmt.Sprintf("reservation %s could not be read: try again: %s", key, err)}
	}
	if refused := mayGiveBack(object, key, scheduler); refused != nil {
		return refused
	}
	if len(slots) > 0 {
		err = a.store.ReleaseSlots(a.writes.ctx, key.Namespace, key.Name, slots)
	} else if err = a.remove(object); err == nil {
		a.ledger.ReleaseHolds(key.Namespace, key.Name)
	}
	if err != nil {
		return &giveBackError{transient: true, message: fmt.Sprintf("reservation %s could not be changed: try again: %s", key, err)}
	}
	return nil
}

// mayGiveBack refuses what is not the scheduler's to give back.
func mayGiveBack(object *v1alpha1.Reservation, key types.NamespacedName, scheduler string) *giveBackError {
	switch owner := object.Spec.SchedulerName; {
	case object.Labels[convert.MadeByLabel] != convert.MadeByReserve:
		return &giveBackError{reason: ledger.NotOwner, message: fmt.Sprintf(
			"reservation %s was not made by /reserve: delete the object instead", key)}
	case owner != "" && owner != scheduler:
		return &giveBackError{reason: ledger.NotOwner, message: fmt.Sprintf(
			"reservation %s belongs to scheduler %q; only that one may give it back", key, owner)}
	default:
		return nil
	}
}

// remove deletes an object; its UID makes a repeated delete harmless. After an
// error it may still be deleted, where the answers were lost: what follows the
// objects releases the room then.
func (a *API) remove(object *v1alpha1.Reservation) error {
	deadline := a.clock.Now().Add(a.limits.StoreTimeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := a.store.Delete(a.writes.ctx, object.Namespace, object.Name, object.UID)
		said := store.Classify(err)
		if said == store.Done || said == store.Missing {
			return nil
		}
		again := said != store.Refused && !a.clock.Now().Add(pause).After(deadline)
		if !again || !a.writes.pause(a.clock, pause) {
			return err
		}
	}
}

// claimedRef completes a pod named without UID so that its claim is found: by
// name where it was reserved through here, else by the UID the API server has.
func (a *API) claimedRef(ref ledger.PodRef) ledger.PodRef {
	if view, ok := a.ledger.Claim(ref); ok {
		return view.Pod
	}
	if info, ok := a.pods.Pod(ref.Namespace, ref.Name); ok {
		return info.Ref
	}
	return ref
}
