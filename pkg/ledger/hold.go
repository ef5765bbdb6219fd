package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// HoldRef names a hold: one slot of a reservation.
type HoldRef struct {
	Namespace string
	Name      string // of the reservation
	Slot      string
}

// String returns namespace/name/slot, the form of the matched-reservation
// annotation.
func (r HoldRef) String() string { return r.Namespace + "/" + r.Name + "/" + r.Slot }

func (r HoldRef) reservation() nameKey { return nameKey{r.Namespace, r.Name} }

// AllocatePolicy says how pods may use a hold.
type AllocatePolicy string

// The allocate policies.
const (
	// Once: the first pod takes the hold; what it does not need is released
	// when it is bound.
	Once AllocatePolicy = "Once"
	// Aligned: pods share the hold and may use the node's free room as well.
	Aligned AllocatePolicy = "Aligned"
	// Restricted: pods share the hold, and of the resources it names they may
	// use no more than it has.
	Restricted AllocatePolicy = "Restricted"
)

// Hold keeps room on a node for pods to come. Its pods and the hold together
// use, of every resource, the larger of what the hold keeps and what its pods
// ask for.
type Hold struct {
	Ref HoldRef
	// UID is that of the reservation's object; empty where there was none yet. It
	// tells the hold from one of an earlier reservation of the name. Views and
	// events do not have it.
	UID  types.UID
	Node string
	// Request is the room kept. The ledger keeps the pointer, so it must not be
	// changed afterwards.
	Request     *resources.Request
	Policy      AllocatePolicy
	Scheduler   string
	Priority    int32
	Preemptible bool
	// Pod, if it has a name, is the only pod that may use the hold.
	Pod PodRef
	// Devices are what the hold keeps of the node's devices, or nil. They are its own:
	// its pods are given these first. Of the resources it names a Restricted hold's
	// pods are given no others.
	Devices *DeviceRequest
	// Deadline is when the hold expires; zero means never. A hold does not
	// expire while a pod is being bound that uses it.
	Deadline time.Time
}

// hold is a Hold on a node's account.
type hold struct {
	Hold
	node      int32
	place     int // in the list of its reservation
	consumers []*claim
	// rest is what the hold keeps beyond what its consumers ask for: the
	// consumers' own claims and the rest add up to the larger of both.
	rest    *resources.Request
	given   []GivenDevices // the devices it keeps
	expiry  deadline
	overdue bool // its deadline passed while a bind was in flight
}

// isFor reports whether the hold is for one pod only, and that pod is this one.
func (h *hold) isFor(pod PodRef) bool {
	return h.Pod.Name == pod.Name && h.Pod.Namespace == pod.Namespace && h.Ref.Namespace == pod.Namespace &&
		(h.Pod.UID == "" || pod.UID == "" || h.Pod.UID == pod.UID)
}

// isOf reports whether the hold can be one of the reservation of a UID: it is
// not only where both are known and differ.
func (h *hold) isOf(uid types.UID) bool { return h.UID == "" || uid == "" || h.UID == uid }

// binding reports whether a bind is in flight that uses the hold.
func (h *hold) binding() bool {
	return slices.ContainsFunc(h.consumers, func(c *claim) bool { return c.state == Binding })
}

// asked returns what the consumers ask for of one resource.
func (h *hold) asked(col resources.Column) (sum int64) {
	for _, c := range h.consumers {
		sum, _ = resources.Add(sum, c.request.Value(col))
	}
	return sum
}

// computeRest returns what the hold keeps beyond its consumers.
func (h *hold) computeRest() *resources.Request {
	if len(h.consumers) == 0 {
		return h.Request
	}
	rest := &resources.Request{}
	for _, a := range h.Request.Amounts {
		if left := resources.Sub(a.Value, h.asked(a.Column)); left > 0 {
			rest.Amounts = append(rest.Amounts, resources.Amount{Column: a.Column, Value: left})
		}
	}
	return rest
}

// keepsDevicesFor returns how many devices of the resources asked for a hold keeps.
func (h *hold) keepsDevicesFor(r *DeviceRequest) (count int64) {
	for _, g := range h.given {
		if slices.ContainsFunc(r.Requests, func(o *devices.Request) bool { return o.Resource() == g.Resource }) {
			count += int64(len(g.IDs))
		}
	}
	return count
}

// nothing is the rest of a hold that keeps nothing; it is never changed.
var nothing = &resources.Request{}

// setRest replaces what the hold counts for.
func (l *account) setRest(h *hold, rest *resources.Request) {
	was := h.rest
	h.rest = nothing
	l.unuse(h.node, was)
	h.rest = rest
	l.use(h.node, rest, 1)
}

// join makes a claim, placed on the hold's node, one of the hold's consumers.
func (l *account) join(c *claim, h *hold) {
	c.hold = h
	h.consumers = append(h.consumers, c)
	l.setRest(h, h.computeRest())
}

// leave takes a claim out of its hold's consumers; c.hold still tells which.
func (l *account) leave(c *claim) {
	h := c.hold
	h.consumers = slices.DeleteFunc(h.consumers, func(o *claim) bool { return o == c })
	l.setRest(h, h.computeRest())
}

// addHold puts a hold on its node's account, and the devices it was given.
func (l *account) addHold(spec *Hold, given []GivenDevices) *hold {
	i := l.ensureNode(spec.Node)
	h := &hold{Hold: *spec, node: i, rest: nothing, given: given}
	h.expiry = deadline{index: -1, hold: h}
	n := l.nodes[i]
	n.holds = append(n.holds, h)
	l.holds[h.Ref] = h
	key := h.Ref.reservation()
	h.place = len(l.reservations[key])
	l.reservations[key] = append(l.reservations[key], h)
	if h.Pod.Name != "" {
		l.holdsByPod[h.Pod.key()] = append(l.holdsByPod[h.Pod.key()], h)
	}
	l.setRest(h, h.Request)
	if len(h.Request.Ports) > 0 {
		l.occupy(i, h.Request, portUse{hold: h})
	}
	if given != nil {
		l.own(i, given, deviceOwner{hold: h})
	}
	if !h.Deadline.IsZero() {
		l.deadlines.set(&h.expiry, nanos(h.Deadline))
	}
	return h
}

// dropHold takes a hold off its node's account. Its consumers stay as claims of
// their own.
func (l *account) dropHold(h *hold) {
	for _, c := range h.consumers {
		c.hold = nil
	}
	h.consumers = nil
	l.setRest(h, nothing)
	if len(h.Request.Ports) > 0 {
		l.vacate(h.node, h.Request, func(u portUse) bool { return u.hold == h })
	}
	n := l.nodes[h.node]
	n.holds = without(n.holds, h)
	if h.given != nil {
		l.disown(h.node, h.given, deviceOwner{hold: h})
	}
	delete(l.holds, h.Ref)
	l.unlist(h)
	if key := h.Pod.key(); h.Pod.Name != "" {
		if l.holdsByPod[key] = without(l.holdsByPod[key], h); len(l.holdsByPod[key]) == 0 {
			delete(l.holdsByPod, key)
		}
	}
	if h.expiry.index >= 0 {
		l.deadlines.remove(&h.expiry)
	}
}

// unlist takes a hold out of its reservation's list. That may be long: the last
// of the list takes its place.
func (l *account) unlist(h *hold) {
	key := h.Ref.reservation()
	holds := l.reservations[key]
	last := len(holds) - 1
	if last == 0 {
		delete(l.reservations, key)
		return
	}
	holds[h.place] = holds[last]
	holds[h.place].place = h.place
	holds[last] = nil
	l.reservations[key] = holds[:last]
}

// reservation returns the holds of a reservation, ordered by slot.
func (l *account) reservation(key nameKey) []*hold {
	holds := slices.Clone(l.reservations[key])
	slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.Ref.Slot, b.Ref.Slot) })
	return holds
}

func without(holds []*hold, h *hold) []*hold {
	i := slices.Index(holds, h)
	return slices.Delete(holds, i, i+1)
}

// endHold drops a hold and tells why. pod is the consumer that ended it, if one did.
func (l *account) endHold(h *hold, why EventType, pod PodRef) {
	if pod.Name == "" {
		pod = h.Pod
	}
	l.dropHold(h)
	l.recordHold(why, h, pod)
	l.dropIfEmpty(h.node)
}

// settle does what a hold has waited for until a claim that uses it stopped
// being bound.
func (l *account) settle(h *hold, c *claim) {
	switch {
	case l.holds[h.Ref] != h: // ended by something else meanwhile
	case c != nil && h.Policy == Once && c.state == Bound:
		l.endHold(h, HoldConsumed, c.pod)
	case h.overdue && !h.binding():
		l.endHold(h, HoldExpired, PodRef{})
	}
}
