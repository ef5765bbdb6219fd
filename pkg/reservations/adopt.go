package reservations

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// addRecord takes in an object for the first time. The objects of the start are looked at together, once pods and nodes
// are known (restoreAll). A later object has what the ledger keeps for it. c.mu is held.
func (c *Controller) addRecord(rsv *v1alpha1.Reservation) {
	r := newRecord(rsv)
	c.records[r.key()] = r
	switch {
	case r.final():
		c.explainEnd(r)
	case c.starting:
	case convert.MadeByServer(rsv):
		c.adopt(r)
	default:
		c.begin(r)
	}
	c.match(r)
	c.queue.Add(r.key())
}

// begin makes an object wait for its placement, except for slots that were given back. An object that can never be
// placed fails. c.mu is held.
func (c *Controller) begin(r *record) {
	names := givenBack(&r.status)
	if r.status = *r.rsv.Status.DeepCopy(); r.status.Phase != v1alpha1.ReservationPending {
		r.status = v1alpha1.ReservationStatus{}
	}
	r.giveBack(names)
	if r.rsv.Status.Phase == v1alpha1.ReservationAvailable {
		r.waits(cause{reasonNotGranted, "the status said Available, but no capacity was granted"}, c.wall())
	}
	if _, _, why := c.wanted(r.rsv); why != nil {
		c.refuse(r, *why)
		return
	}
	c.wake()
}

// wanted returns the slots that an object asks for, and for how long, or why it can never be placed.
func (c *Controller) wanted(rsv *v1alpha1.Reservation) (kept []ledger.Slot, ttl time.Duration, why *cause) {
	kept, err := convert.Slots(c.Ledger.Table(), rsv)
	if err != nil {
		return nil, 0, &cause{reasonInvalidSpec, err.Error()}
	}
	if consumers := rsv.Spec.Consumers; consumers != nil && consumers.Selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(consumers.Selector); err != nil {
			return nil, 0, &cause{reasonInvalidSpec, "no pod can match consumers.selector: " + err.Error()}
		}
	}
	if ttl, err = c.ttl(rsv); err != nil {
		return nil, 0, &cause{reasonTTLTooLong, err.Error()}
	}
	return kept, ttl, nil
}

// ttl returns how long a reservation lasts from when it is available; 0 is until it is deleted.
func (c *Controller) ttl(rsv *v1alpha1.Reservation) (time.Duration, error) {
	var asked time.Duration
	if ttl := rsv.Spec.TTL; ttl != nil {
		if asked = ttl.Duration; asked == 0 {
			return 0, nil
		}
	}
	return c.Policy.ReservationTTL(rsv.Spec.SchedulerName, asked)
}

// adopt takes in an object that the server made just now, for slots that it had placed before. Some may have ended
// already. If none was ever there, the object has to be placed like any other. c.mu is held.
func (c *Controller) adopt(r *record) {
	placed := len(c.Ledger.ReservationSlots(r.rsv.Namespace, r.rsv.Name)) > 0
	c.journal.CatchUp() // the end of what is not held is known now, if it was held
	// The UIDs of the nodes are filled in below.
	slots := make([]v1alpha1.SlotStatus, len(r.slots))
	for i := range slots {
		spec := &r.rsv.Spec.Slots[i]
		slots[i].NodeName = spec.NodeName
		ref := ledger.SlotRef{Namespace: r.rsv.Namespace, Name: r.rsv.Name, Slot: spec.Name}
		if end, ok := c.orphans.Get(ref); ok {
			r.slots[i].end, placed = end.(ending), true
			c.orphans.Remove(ref)
		}
	}
	if !placed {
		c.begin(r)
		return
	}
	made, expiresAt := r.rsv.CreationTimestamp.Time, convert.Deadline(r.rsv)
	if ttl, err := c.ttl(r.rsv); err == nil && r.rsv.Spec.TTL == nil {
		expiresAt = convert.DeadlineAfter(made, ttl)
	}
	r.granted(slots, made, c.wall())
	r.expire(expiresAt, c.Ledger.Clock.Ends(expiresAt, expiresAt.Sub(made)))
	c.Ledger.SetSlotDeadline(r.rsv.Namespace, r.rsv.Name, r.deadline)
	c.loseNodesOf(r)
}

// applyTTL moves the deadline of an available reservation whose ttl was extended. c.mu is held.
func (c *Controller) applyTTL(r *record) {
	ttl := r.rsv.Spec.TTL
	if ttl == nil || r.status.Phase != v1alpha1.ReservationAvailable {
		return
	}
	expiresAt, deadline, later := r.extended(ttl.Duration)
	if !later {
		return
	}
	if _, err := c.ttl(r.rsv); err != nil {
		if r.refusedTTL != ttl.Duration {
			r.refusedTTL = ttl.Duration
			c.tell(r, reasonTTLTooLong, "Extend", err.Error()+"; the reservation expires as before")
		}
		return
	}
	c.Ledger.SetSlotDeadline(r.rsv.Namespace, r.rsv.Name, deadline)
	r.expire(expiresAt, deadline)
	c.tell(r, "Extended", "Extend", "the ttl is "+ttl.Duration.String()+" now")
}

// priority is that of the object or, where it names none, the highest of the pods its slots name.
func (c *Controller) priority(rsv *v1alpha1.Reservation) int32 {
	if rsv.Spec.Priority != nil {
		return *rsv.Spec.Priority
	}
	highest, found := int32(0), false
	for i := range rsv.Spec.Slots {
		ref := rsv.Spec.Slots[i].Pod
		if ref == nil {
			continue
		}
		pod, ok := c.Pods.Pod(rsv.Namespace, ref.Name)
		if ok && (ref.UID == "" || ref.UID == pod.Ref.UID) && (!found || pod.Priority > highest) {
			highest, found = pod.Priority, true
		}
	}
	return highest
}
