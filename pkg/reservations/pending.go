package reservations

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// Pending is a reservation that waits for capacity.
type Pending struct {
	Reservation *v1alpha1.Reservation // shared; it must not be changed; see asked
	Priority    int32
	// Reason and Message are of its last attempt; empty before the first.
	Reason, Message string
	// Slot is the first slot that there is no capacity for, where that is the reason. Lacks is what this slot asks for.
	Slot  string
	Lacks []ledger.Lack
	// NoNodeFits says that the server finds no node for a slot. Provisioning says that nodes were requested for it.
	NoNodeFits, Provisioning bool
}

// Pending returns the reservations that wait for capacity, by namespace and name.
func (c *Controller) Pending() []Pending {
	c.mu.Lock()
	var list []Pending
	for _, r := range c.records {
		if r.pending() {
			list = append(list, Pending{
				Reservation: r.asked(), Reason: r.why.reason, Message: r.why.message, Slot: r.lacking, Lacks: r.lacks,
				NoNodeFits: r.why.reason == reasonNoNodeFits, Provisioning: r.provisioning(),
			})
		}
	}
	c.mu.Unlock()
	for i := range list {
		list[i].Priority = c.priority(list[i].Reservation)
	}
	slices.SortFunc(list, func(a, b Pending) int {
		return cmp.Or(strings.Compare(a.Reservation.Namespace, b.Reservation.Namespace),
			strings.Compare(a.Reservation.Name, b.Reservation.Name))
	})
	return list
}

// ToGiveBack returns, by pod index, the slots that pods were granted through /reserve and that the objects do not say
// are given back. Such a slot may have no capacity: its node went, or a server that took over looks for some. It then
// has no node. A slot may have been granted before the pod of its name existed.
func (c *Controller) ToGiveBack(pods []ledger.PodRef) map[int][]ledger.Slot {
	byName, found := map[types.NamespacedName][]int{}, map[int][]ledger.Slot{}
	for i := range pods {
		key := types.NamespacedName{Namespace: pods[i].Namespace, Name: pods[i].Name}
		byName[key] = append(byName[key], i)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.rsv.Status.Phase.IsFinal() || r.rsv.Labels[convert.MadeByLabel] != convert.MadeByReserve {
			continue
		}
		for s := range r.rsv.Spec.Slots {
			slot := &r.rsv.Spec.Slots[s]
			if slot.Pod == nil {
				continue
			}
			for _, i := range byName[types.NamespacedName{Namespace: r.rsv.Namespace, Name: slot.Pod.Name}] {
				same := slot.Pod.UID == "" || pods[i].UID == "" || slot.Pod.UID == pods[i].UID
				if !same || !r.toGiveBack(slot.Name) {
					continue
				}
				kept := ledger.Slot{
					Ref:       ledger.SlotRef{Namespace: r.rsv.Namespace, Name: r.rsv.Name, Slot: slot.Name},
					Scheduler: r.rsv.Spec.SchedulerName, Caller: r.rsv.Annotations[v1alpha1.CallerAnnotation],
				}
				if r.keeps(slot.Name) {
					kept.Node = r.status.Slots[s].NodeName
				}
				found[i] = append(found[i], kept)
			}
		}
	}
	return found
}

// asked returns a reservation that waits, without the slots that were given back through /unreserve.
func (r *record) asked() *v1alpha1.Reservation {
	back := givenBack(&r.status)
	if len(back) == 0 || r.rsv.Labels[convert.MadeByLabel] != convert.MadeByReserve {
		return r.rsv
	}
	rsv := *r.rsv
	rsv.Spec.Slots = slices.DeleteFunc(slices.Clone(rsv.Spec.Slots), func(s v1alpha1.Slot) bool { return back[s.Name] })
	return &rsv
}

// noteRefusal records what a pending reservation lacks. It calls OnRefused the first time, and when the slot or the
// reason is another one: the reservation is tried again all the time. c.mu is held.
func (c *Controller) noteRefusal(r *record, no *refused) {
	if no.asked == nil {
		return
	}
	r.lacking, r.lacks = no.asked.Ref.Slot, no.lacks
	if key := no.reason + "/" + r.lacking; r.refusedFor != key {
		r.refusedFor = key
		said := no.said
		if said == nil && !no.barred {
			said = c.nearest(no)
		}
		c.OnRefused(no.asked, said, no.message)
	}
}

// nearest returns why a slot does not fit on that node, of those it may be on, where it lacks least; nil without any.
func (c *Controller) nearest(no *refused) *ledger.Rejection {
	nodes := slices.DeleteFunc(c.Ledger.NodeNames(), func(name string) bool { return c.avoids(no.slot, name) != "" })
	return c.Ledger.Nearest(&ledger.Placement{
		Pod: no.asked.Pod, Request: no.asked.Request, Devices: no.asked.Devices, NoDRA: true,
	}, nodes)
}

// lacksThere returns what the ledger found too little of; nil where it refused for another reason.
func lacksThere(r *ledger.Rejection) []ledger.Lack {
	if r.Resource == "" {
		return nil
	}
	lack := ledger.Lack{Resource: r.Resource, Requested: r.Requested, Largest: r.Free, Node: r.Node}
	if r.Reason.OfLimit() {
		lack.Node = ""
	}
	return []ledger.Lack{lack}
}
