package reservations

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// restoreAll looks at the objects of the start, once all pods and nodes are in the ledger and before anything else is
// decided. It restores those that say that capacity was granted to them, the oldest first: the creation time is the one
// thing that nobody can write into an object. It also restores those that the server made, whatever their status says:
// a server that did not decide any more may have written it. All others begin to wait.
func (c *Controller) restoreAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	all := slices.SortedFunc(maps.Values(c.records), func(a, b *record) int {
		return cmp.Or(a.rsv.CreationTimestamp.Compare(b.rsv.CreationTimestamp.Time),
			cmp.Compare(a.rsv.Namespace, b.rsv.Namespace), cmp.Compare(a.rsv.Name, b.rsv.Name))
	})
	for _, r := range all {
		switch {
		case r.final():
		case convert.Granted(r.rsv), convert.MadeByServer(r.rsv):
			c.restore(r)
		default:
			c.begin(r)
		}
		c.queue.Add(r.key())
	}
	c.starting = false
}

// restore gives an object back what it says that it had, as far as that is free now. It believes what the object says
// of slots that are used up or given back, as that gives nothing. c.mu is held.
func (c *Controller) restore(r *record) {
	now := c.wall()
	since, expiresAt, err := c.term(r.rsv, now)
	if err != nil {
		c.refuse(r, cause{reasonTTLTooLong, err.Error()})
		return
	}
	kept, err := convert.GrantedSlots(c.Ledger.Table(), r.rsv)
	if err != nil {
		c.refuse(r, cause{reasonInvalidSpec, err.Error()})
		return
	}
	if !r.restored(kept, since, now) {
		clear(r.slots)
		r.status = *r.rsv.Status.DeepCopy()
		c.begin(r) // its status does not say where it was
		return
	}
	r.expire(expiresAt, c.Ledger.Clock.At(expiresAt))
	c.endRestored(r)
	priority := c.priority(r.rsv)
	kept = slices.DeleteFunc(kept, func(h ledger.Slot) bool { return !r.keeps(h.Ref.Slot) })
	for k := range kept {
		kept[k].Priority, kept[k].AvailableAt, kept[k].Deadline = priority, since, r.deadline
	}
	why := c.reclaim(r, kept)
	switch {
	case why == nil:
		c.project(r)
	case r.used():
		// Some pods run and the others have no place: what is left of the reservation is of no use.
		c.giveUp(r, cause{reasonCapacityLost, "the capacity of other slots went while no server watched: " + why.message})
		c.project(r)
	default:
		for i := range r.slots {
			if r.slots[i].end.how == ledger.SlotReleased {
				r.status.Slots[i].State = v1alpha1.SlotReleased
			}
		}
		clear(r.slots)
		if c.begin(r); r.pending() {
			r.waits(cause{reasonNotGranted, "the capacity that the reservation had is not free: " + why.message}, now)
		}
	}
}

// term returns since when an object that says that it was available is so, and until when (zero: for ever). The end in
// its status may be later than by its ttl, which was longer then, as far as the policy allows that.
func (c *Controller) term(rsv *v1alpha1.Reservation, now time.Time) (since, deadline time.Time, err error) {
	ttl, err := c.ttl(rsv)
	since = rsv.CreationTimestamp.Time
	if at := rsv.Status.AvailableAt; at != nil && at.After(since) && !at.After(convert.DeadlineAfter(now, 0)) {
		since = at.Time
	}
	switch {
	case err != nil:
	case ttl == 0:
		return since, time.Time{}, nil
	default:
		deadline = convert.DeadlineAfter(since, ttl)
	}
	if end := rsv.Status.ExpiresAt; end != nil && (rsv.Spec.TTL == nil || end.After(deadline)) {
		if _, refused := c.Policy.ReservationTTL(rsv.Spec.SchedulerName, end.Sub(since)); refused == nil {
			return since, end.Time, nil
		}
	}
	return since, deadline, err
}

// restored puts the status in order: the slots in kept are to be kept. It reports false where it cannot be known what
// became of another slot.
func (r *record) restored(kept []ledger.Slot, since, now time.Time) bool {
	r.status = *r.rsv.Status.DeepCopy()
	was := map[string]v1alpha1.SlotStatus{}
	for _, s := range r.status.Slots {
		was[s.Name] = s
	}
	slots := make([]v1alpha1.SlotStatus, len(r.slots))
	for i := range slots {
		spec := &r.rsv.Spec.Slots[i]
		slots[i].NodeName, slots[i].NodeUID = cmp.Or(spec.NodeName, was[spec.Name].NodeName), was[spec.Name].NodeUID
	}
	r.granted(slots, since, now)
	clear(r.slots)
	for k := range kept {
		r.slots[r.byName[kept[k].Ref.Slot]].held = true
	}
	for i := range r.slots {
		if r.slots[i].held {
			continue
		}
		r.status.Slots[i] = was[r.status.Slots[i].Name]
		if state := r.status.Slots[i].State; state != v1alpha1.SlotConsumed && state != v1alpha1.SlotReleased {
			return false
		}
	}
	return true
}

// endRestored ends the slots that keep nothing any more: their deadline has passed, their pods were deleted or have
// finished, or their node is another one of the same name. c.mu is held.
func (c *Controller) endRestored(r *record) {
	for i := range r.slots {
		slot, status := &r.slots[i], &r.status.Slots[i]
		node, ok := c.Nodes.Node(status.NodeName)
		switch {
		case !slot.held:
		case !r.deadline.IsZero() && !r.deadline.After(c.now()):
			slot.end = ending{how: ledger.SlotExpired}
		case status.NodeUID != "" && (!ok || node.UID != status.NodeUID):
			c.giveUp(r, cause{reasonNodeGone, "node " + status.NodeName + " was deleted, or another one has its name"})
			return
		case c.podGone(r.rsv.Namespace, r.rsv.Spec.Slots[i].Pod):
			slot.end = ending{how: ledger.SlotReleased}
		case ok:
			status.NodeUID = node.UID
		}
	}
}

// giveUp ends all slots that are held, for a reason. c.mu is held.
func (c *Controller) giveUp(r *record, why cause) {
	r.failure = &why
	for i := range r.slots {
		if r.slots[i].holds() {
			r.slots[i].end = ending{how: ledger.SlotReleased}
		}
	}
}

// podGone reports whether the pod that a slot is for was deleted, or has finished.
func (c *Controller) podGone(namespace string, ref *v1alpha1.PodReference) bool {
	if ref == nil || ref.UID == "" {
		return false
	}
	pod, ok := c.Pods.Pod(namespace, ref.Name)
	return !ok || pod.Ref.UID != ref.UID || pod.Finished
}

// keeps reports whether a slot is held, as far as known.
func (r *record) keeps(slot string) bool { return r.slots[r.byName[slot]].holds() }

// used reports whether a pod uses a slot, or used one up.
func (r *record) used() bool {
	for i := range r.slots {
		if r.slots[i].end.how == ledger.SlotConsumed || r.status.Slots[i].State == v1alpha1.SlotConsumed {
			return true
		}
	}
	return false
}

// reclaim keeps the slots again, all or none, and returns why it does not. It relies on nothing else being decided
// meanwhile. Where the capacity was granted the gates do not count: it stays granted, whatever the policy says by now.
// c.mu is held.
func (c *Controller) reclaim(r *record, kept []ledger.Slot) *cause {
	// Slots that the name has already, of a pod that was deleted just now, are not what the object asks for.
	if c.Ledger.ReleaseSlots(r.rsv.Namespace, r.rsv.Name) > 0 {
		c.journal.CatchUp()
	}
	// Pods that were bound with a slot are linked with it first, to see what it keeps beyond what they use.
	for _, h := range kept {
		r.slots[r.byName[h.Ref.Slot]].end = ending{}
		c.Ledger.ObserveSlot(h)
	}
	c.giveWayToPods(kept)
	c.journal.CatchUp() // some are used up, or their pods are elsewhere, or another scheduler's
	rests := c.restsOf(r)
	c.Ledger.ReleaseSlots(r.rsv.Namespace, r.rsv.Name)
	c.journal.CatchUp()
	for k := range rests {
		r.slots[r.byName[rests[k].Ref.Slot]].end = ending{}
	}
	for k := range rests {
		if err := c.Ledger.RefuseSlot(&rests[k]); err != nil && !convert.Granted(r.rsv) {
			return &cause{reasonNotGranted, err.Error()}
		}
	}
	var result ledger.Result
	c.Ledger.Try(func(t *ledger.Trial) { result = t.Reserve(ledger.Plan{Slots: rests, Mode: ledger.AllOrNothing}) })
	if len(result.Rejections) > 0 {
		return &refusal(result.Rejections, r.rsv.Spec.Slots, rests).cause
	}
	if why := elsewhere(rests, result.Existing); why != nil {
		return why
	}
	for k := range kept {
		if r.keeps(kept[k].Ref.Slot) {
			c.keepToFree(&kept[k])
			c.Ledger.ObserveSlot(kept[k])
		}
	}
	return nil
}

// giveWayToPods looks at pods that did not exist when capacity was reserved for them. Where they exist by now and are
// another scheduler's, the capacity gives way.
func (c *Controller) giveWayToPods(kept []ledger.Slot) {
	for i := range kept {
		pod, ok := c.Pods.Pod(kept[i].Pod.Namespace, kept[i].Pod.Name)
		if ok && kept[i].PodToCome && pod.Node == "" && !pod.Finished {
			cluster.ObserveUnbound(c.Ledger.Observer(), c.Log, pod)
		}
	}
}

// restsOf returns the slots of a reservation with what they keep beyond what their pods use. They may stay on a node
// that was cordoned since.
func (c *Controller) restsOf(r *record) (rests []ledger.Slot) {
	for _, view := range c.Ledger.ReservationSlots(r.rsv.Namespace, r.rsv.Name) {
		request := *view.Rest
		request.ToleratesUnschedulable = true
		view.Request = &request
		view.Caller = r.rsv.Annotations[v1alpha1.CallerAnnotation] // which views do not have
		if len(view.Consumers) > 0 {
			view.Pod, view.Devices = ledger.PodRef{}, nil // its pods have the devices
		}
		rests = append(rests, view.Slot)
	}
	return rests
}

// keepToFree forgets which devices a slot is said to keep where one of them is not free: it then gets others. The
// ledger does not believe more devices than a slot asks for.
func (c *Controller) keepToFree(h *ledger.Slot) {
	if h.Devices == nil || h.Devices.Given == "" {
		return
	}
	type device struct{ resource, id string }
	free := map[device]bool{}
	node, _, _ := c.Ledger.Node(h.Node)
	for _, d := range node.Devices {
		there := device{d.Resource, d.ID}
		free[there] = free[there] || d.Free
	}
	ids := strings.Split(h.Devices.Given, ",")
	for _, request := range h.Devices.Requests {
		for range min(request.Count(), len(ids)) {
			asked := device{request.Resource(), ids[0]}
			if !free[asked] {
				h.Devices.Given = ""
				return
			}
			free[asked], ids = false, ids[1:]
		}
	}
}
