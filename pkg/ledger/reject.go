package ledger

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// hostPortPrefix starts Rejection.Resource where a host port is what is short.
const hostPortPrefix = "hostPort/"

// reject explains a refusal. own is the slot the pod has in memory, which is off the account now, or nil.
func (l *account) reject(p *Placement, v Verdict, own *entry) *Rejection {
	r := &Rejection{Pod: p.Pod, Node: p.Node, Reason: v.Reason}
	var within *entry
	caller := p.Caller
	if own != nil {
		r.AllocatedOn, within, caller = l.names[own.node], own.within, own.caller
	}
	if v.Reason.OfLimit() {
		l.explainLimit(r, p, v, caller)
		return r
	}
	i, ok := l.nodeIndex[p.Node]
	if !ok {
		return r
	}
	switch v.Reason {
	case InsufficientResource:
		l.explainShortage(r, i, p, v, own)
	case HostPortConflict, AntiAffinity:
		l.explainPort(r, i, p.Request, within)
	case InsufficientDevices, DeviceClaimInUse, DeviceClaimUnusable:
		l.explainDevices(r, i, p, within)
	}
	return r
}

func (l *account) explainShortage(r *Rejection, i int32, p *Placement, v Verdict, own *entry) {
	req := p.Request
	if v.Unlisted {
		r.Resource, r.Requested, r.Unlisted = string(req.Unlisted[0].Name), req.Unlisted[0].Value, true
		return
	}
	col := v.Column
	r.Resource = string(l.table.Name(col))
	r.Requested = req.Value(col)
	r.Free = at(l.row(i), col)
	if free := at(l.rowFor(i, p, own), col); free < r.Free {
		r.Free = free
		r.Detail = "the rest is kept for a pod of a higher priority, for which others make way"
	}
	if own != nil {
		r.restrict(own.within, col)
	}
	if l.flags[i]&(hasDevices|usesDRA) != 0 && r.Free >= r.Requested && at(l.nodes[i].allocatable, col) == 0 {
		r.Free = 0 // there are devices, and none by count
	}
	if l.leftToDRA(i, col) {
		r.Detail = "the node leaves it to DRA, which keeps none for later; the status of a pod says what DRA gave it"
	}
	r.Holders = l.holders(i, col)
}

// restrict sets Free to what is left of the slot that a pod uses, where that slot restricts the pod.
func (r *Rejection) restrict(within *entry, col resources.Column) {
	if within != nil && within.restricts(col) && within.counts.Value(col) < r.Requested {
		r.Free = within.counts.Value(col)
		r.Detail = "it is part of a reservation, whose pods may use no more than that has"
	}
}

func (l *account) explainPort(r *Rejection, i int32, req *resources.Request, within *entry) {
	p := l.portTaken(i, req, within)
	if p == nil {
		return
	}
	if r.Resource = p.IP; !p.IsTerm() {
		r.Resource = fmt.Sprintf("%s%s/%d", hostPortPrefix, p.Protocol, p.Port)
	}
	r.Requested = 1
	for _, u := range l.nodes[i].ports[p.PortKey] {
		h := u.by.holder(1)
		listed := (within != nil && u.by == within) || len(r.Holders) == maxHolders || slices.Contains(r.Holders, h)
		if !listed && p.CollidesWith(u.HostPort) {
			r.Holders = append(r.Holders, h)
		}
	}
}

// holders lists the allocations and slots that use most of a resource on a node, of equals the oldest first.
func (l *account) holders(i int32, col resources.Column) []Holder {
	var top []Holder
	for e := l.nodes[i].last; e != nil; e = e.prev {
		amount := e.counts.Value(col)
		if amount == 0 || (len(top) == maxHolders && amount <= top[maxHolders-1].Amount) {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, amount, func(h Holder, a int64) int { return cmp.Compare(a, h.Amount) })
		top = slices.Insert(top[:min(len(top), maxHolders-1)], at, e.holder(amount))
	}
	return top
}

func (e *entry) holder(amount int64) Holder {
	if e.slot != nil {
		return Holder{Slot: e.slot.ref, Scheduler: e.scheduler, Amount: amount}
	}
	return Holder{Pod: e.pod, Scheduler: e.scheduler, State: e.state, Amount: amount}
}

// Message says in words why the pod was refused and what would help. All who may read the refused pod or reservation
// see it: it names nothing of another namespace.
func (r *Rejection) Message() string {
	switch r.Reason {
	case NodeUnknown:
		return fmt.Sprintf("node %q is not in the ledger: it does not exist or was deleted; choose another node", r.Node)
	case NodeUnschedulable:
		return fmt.Sprintf("node %q is cordoned and %s does not tolerate it; choose another node", r.Node, r.subject())
	case InsufficientResource:
		asked, free := resources.Shortage(v1.ResourceName(r.Resource), r.Requested, r.Free)
		return fmt.Sprintf("node %q has too little %s for %s: requested %s, %s free%s%s%s",
			r.Node, r.Resource, r.subject(), asked, free, r.holdersText(), r.keptText(), r.detailText())
	case HostPortConflict:
		return fmt.Sprintf("%s on node %q, asked for by %s, is taken%s", r.Resource, r.Node, r.subject(), r.holdersText())
	case AntiAffinity:
		return fmt.Sprintf("required anti-affinity (%s) keeps %s from node %q%s", r.Resource, r.subject(), r.Node,
			r.holdersText())
	case AllocatedElsewhere:
		return fmt.Sprintf("pod %s already has an allocation on node %q, not on %q; unreserve it there first", r.Pod,
			r.AllocatedOn, r.Node)
	case PodGone:
		return fmt.Sprintf("pod %s (uid %s) was deleted or has finished; do not schedule it", r.Pod, r.Pod.UID)
	case NotOwner:
		return fmt.Sprintf("the reservation of pod %s belongs to another scheduler or caller; only that one may change it "+
			"or give it back", r.Pod)
	case BindInFlight:
		return fmt.Sprintf("pod %s is bound, or being bound, to node %q; delete the pod to free its capacity", r.Pod,
			r.AllocatedOn)
	case PodAllocated:
		return fmt.Sprintf("pod %s already has an allocation on node %q; it needs no reservation", r.Pod, r.AllocatedOn)
	case SlotExists:
		if len(r.Holders) > 0 {
			return fmt.Sprintf("pod %s already has %s on node %q; release that first", r.Pod, r.Holders[0].slotName(),
				r.AllocatedOn)
		}
		return fmt.Sprintf("there is another reservation slot %s on node %q; choose another name", r.Slot, r.AllocatedOn)
	case InsufficientDevices:
		return fmt.Sprintf("node %q has too few free devices for %s: %s", r.Node, r.subject(), r.Detail)
	case DeviceClaimInUse:
		return fmt.Sprintf("claim %s of %s is in use%s; a claim serves one pod at a time", r.DeviceClaim, r.subject(),
			r.userText())
	case DeviceClaimUnusable:
		return fmt.Sprintf("the device claims of %s cannot be used: %s", r.subject(), r.Detail)
	case QuotaExceeded, ReservedLimit, SlotLimit, CallerLimit:
		return r.limitMessage()
	case GangUnplaced:
		if r.Node == "" {
			return fmt.Sprintf("pod %s is not bound without its gang: there is no capacity for it and the %d others of the "+
				"gang that have to be there at once; the gang waits until there is",
				r.Pod, r.Requested)
		}
		return fmt.Sprintf("pod %s fits node %q, but %d more pods of its gang need capacity at once, and there is some "+
			"for %d; the gang waits until there is for all%s",
			r.Pod, r.Node, r.Requested, r.Free, r.detailText())
	case GangIncomplete, GangWaits:
		return fmt.Sprintf("pod %s is not bound without its gang: %s", r.Pod, r.Detail)
	case Fits:
		return fmt.Sprintf("pod %s fits node %q", r.Pod, r.Node)
	default:
		return fmt.Sprintf("%s is refused on node %q: %s", r.subject(), r.Node, r.Reason)
	}
}

// limitMessage is Message where a limit was reached.
func (r *Rejection) limitMessage() string {
	switch r.Reason {
	case QuotaExceeded:
		return fmt.Sprintf("namespace %q would use more %s than its ResourceQuota: requested for %s %s; delete pods or "+
			"reservations there, or have the quota raised",
			r.LimitOf, r.Resource, r.subject(), r.leftText())
	case ReservedLimit:
		return fmt.Sprintf("reservations of namespace %q would keep more %s than the policy allows "+
			"(namespaces.maxReserved): requested for %s %s; use or release some first",
			r.LimitOf, r.Resource, r.subject(), r.leftText())
	case SlotLimit:
		return fmt.Sprintf("namespace %q has as many reservation slots as the policy allows (namespaces.maxSlots), which "+
			"is %d, so there is none for %s; use or release some first",
			r.LimitOf, r.Limit, r.subject())
	default: // CallerLimit
		return fmt.Sprintf("caller %q would use more %s than the policy allows (schedulers.limits): requested for %s %s",
			r.LimitOf, r.Resource, r.subject(), r.leftText())
	}
}

// detailText is what else is known.
func (r *Rejection) detailText() string {
	if r.Detail == "" {
		return ""
	}
	return "; " + r.Detail
}

// keptText says where a pod that does not fit has a movable slot.
func (r *Rejection) keptText() string {
	if r.AllocatedOn == "" || r.AllocatedOn == r.Node {
		return ""
	}
	return fmt.Sprintf("; capacity is kept for it on node %q", r.AllocatedOn)
}

// Shortage names what was short, for counts of refusals, by few names
// however many ports and resources clients invent: the resource, or "hostPort",
// "antiAffinity", "devices" or "unlisted". ok is false where the pod was not refused for want of capacity.
func (r *Rejection) Shortage() (name string, ok bool) {
	switch {
	case r.Reason == HostPortConflict:
		return "hostPort", true
	case r.Reason == AntiAffinity:
		return "antiAffinity", true
	case r.Reason == InsufficientDevices:
		return "devices", true
	case r.Reason != InsufficientResource:
		return "", false
	case r.Unlisted:
		return "unlisted", true
	default:
		return r.Resource, true
	}
}

// leftText says how much was asked for, and how much of a limit is left.
func (r *Rejection) leftText() string {
	name := v1.ResourceName(r.Resource)
	asked, left := resources.Shortage(name, r.Requested, r.Free)
	return fmt.Sprintf("%s, %s of %s left", asked, left, resources.Number(name, r.Limit))
}

// Name says in words which holder it is.
func (h *Holder) Name() string {
	if h.Slot.Name != "" {
		return "reservation " + h.Slot.String()
	}
	return h.Pod.String()
}

// namespace is that of the holder.
func (h *Holder) namespace() string {
	if h.Slot.Name != "" {
		return h.Slot.Namespace
	}
	return h.Pod.Namespace
}

// slotName says in words which slot of the pod is in the way of another one.
func (h *Holder) slotName() string {
	if h.Slot.Name == "" {
		return "capacity reserved in memory"
	}
	return h.Name() + ", of another size,"
}

// namespace is that of the slot or pod that was refused.
func (r *Rejection) namespace() string {
	if r.Slot.Name != "" {
		return r.Slot.Namespace
	}
	return r.Pod.Namespace
}

// subject says in words which slot or pod was refused.
func (r *Rejection) subject() string {
	if r.Slot.Name != "" {
		return "slot " + r.Slot.String()
	}
	return "pod " + r.Pod.String()
}

// userText names what has the claim of devices.
func (r *Rejection) userText() string {
	if len(r.Holders) == 0 || r.Holders[0].namespace() != r.namespace() {
		return ""
	}
	return " by " + r.Holders[0].Name()
}

// holdersText names the largest holder only: the full list is in Holders.
func (r *Rejection) holdersText() string {
	if len(r.Holders) == 0 {
		return ""
	}
	h := r.Holders[0]
	amount := resources.Text(v1.ResourceName(r.Resource), h.Amount)
	if h.namespace() != r.namespace() {
		return fmt.Sprintf("; largest holder of another namespace (%s, %s)", amount, h.State.OrReserved())
	}
	text := fmt.Sprintf("; largest holder %s (%s, %s", h.Name(), amount, h.State.OrReserved())
	if h.Scheduler != "" {
		text += " by " + h.Scheduler
	}
	return text + ")"
}
