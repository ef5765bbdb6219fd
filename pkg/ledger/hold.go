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

// Hold is a slot: capacity kept on one node for pods to come. Its pods and the slot
// together use, of every resource, the larger of what the slot keeps and what its
// pods ask for.
//
// A slot without a Ref is one in memory: nothing but the ledger knows of it. It is
// for one pod alone (Pod, policy Once) and turns into its pod's claim when the bind
// of the pod begins.
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
	// Holds are, of a slot in memory that is asked for, the slots its pod may use, the
	// one it prefers first. The slot is made within the first on the node that will do:
	// then it counts as one of those who use that slot. The caller has matched them.
	Holds []HoldRef
	// Devices are what the hold keeps of the node's devices, or nil. They are its own:
	// its pods are given these first. Of the resources it names a Restricted hold's
	// pods are given no others.
	Devices *DeviceRequest
	// Deadline is when the hold expires; zero means never. A hold does not
	// expire while a pod is being bound that uses it.
	Deadline time.Time
}

// InMemory reports whether nothing but the ledger knows of the slot.
func (h *Hold) InMemory() bool { return h.Ref.Name == "" }

// hold is a Hold on a node's account.
type hold struct {
	Hold
	node      int32
	place     int // in the list of its reservation
	consumers []*claim
	within    *hold   // the slot that a slot in memory is part of, or nil
	guests    []*hold // the slots in memory that are part of this one
	// rest is what the hold keeps beyond what its users ask for: the users' own
	// amounts and the rest add up to the larger of both.
	rest    *resources.Request
	given   []GivenDevices // the devices it keeps
	expiry  deadline
	overdue bool  // its deadline passed while a bind was in flight
	away    bool  // it is off the account for the length of a Trial
	samePod *hold // the next hold kept for a pod of that name
}

// isFor reports whether the hold is for one pod only, and that pod is this one.
func (h *hold) isFor(pod PodRef) bool {
	return h.Pod.Name == pod.Name && h.Pod.Namespace == pod.Namespace && !h.away &&
		(h.InMemory() || h.Ref.Namespace == pod.Namespace) &&
		(h.Pod.UID == "" || pod.UID == "" || h.Pod.UID == pod.UID)
}

// used reports whether anybody uses the hold.
func (h *hold) used() bool { return len(h.consumers)+len(h.guests) > 0 }

// isOf reports whether the hold can be one of the reservation of a UID: it is
// not only where both are known and differ.
func (h *hold) isOf(uid types.UID) bool { return h.UID == "" || uid == "" || h.UID == uid }

// binding reports whether a bind is in flight that uses the hold.
func (h *hold) binding() bool {
	return slices.ContainsFunc(h.consumers, func(c *claim) bool { return c.state == Binding })
}

// asked returns what the users ask for of one resource.
func (h *hold) asked(col resources.Column) (sum int64) {
	for _, c := range h.consumers {
		sum, _ = resources.Add(sum, c.request.Value(col))
	}
	for _, g := range h.guests {
		sum, _ = resources.Add(sum, g.Request.Value(col))
	}
	return sum
}

// computeRest returns what the hold keeps beyond its users.
func (h *hold) computeRest() *resources.Request {
	if !h.used() {
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

// attach puts a hold on its node's account, with the users it has, and at a place in the
// node's list.
func (l *account) attach(h *hold, at int) {
	n := l.nodes[h.node]
	n.holds = slices.Insert(n.holds, at, h)
	for _, c := range h.consumers {
		c.hold = h
	}
	for _, g := range h.guests {
		g.within = h
	}
	l.setRest(h, h.computeRest())
	if in := h.within; in != nil {
		in.guests = append(in.guests, h)
		l.setRest(in, in.computeRest())
	}
	if len(h.Request.Ports) > 0 {
		l.occupy(h.node, h.Request, portUse{hold: h})
	}
	if h.given != nil {
		l.own(h.node, h.given, deviceOwner{hold: h})
	}
}

// detach takes a hold off its node's account. Its users stay, with capacity of their
// own; the hold still knows them, and what it is within. It returns the hold's place.
func (l *account) detach(h *hold) (at int) {
	n := l.nodes[h.node]
	at = slices.Index(n.holds, h)
	n.holds = slices.Delete(n.holds, at, at+1)
	for _, c := range h.consumers {
		c.hold = nil
	}
	for _, g := range h.guests {
		g.within = nil
	}
	l.setRest(h, nothing)
	if in := h.within; in != nil {
		in.guests = without(in.guests, h)
		l.setRest(in, in.computeRest())
	}
	if len(h.Request.Ports) > 0 {
		l.vacate(h.node, h.Request, func(u portUse) bool { return u.hold == h })
	}
	if h.given != nil {
		l.disown(h.node, h.given, deviceOwner{hold: h})
	}
	return at
}

// addHold makes a hold of a spec, puts it on the account of node i and makes it findable.
// Its deadline does not run before setExpiry.
func (l *account) addHold(spec *Hold, i int32, within *hold, given []GivenDevices) *hold {
	h := l.holdPool
	if h == nil {
		h = &hold{}
	} else {
		l.holdPool = h.samePod
	}
	*h = hold{Hold: *spec, node: i, rest: nothing, given: given, within: within}
	h.Holds = nil
	h.expiry = deadline{index: -1, hold: h}
	if h.InMemory() {
		l.memoryCount++
	} else {
		l.holds[h.Ref] = h
		key := h.Ref.reservation()
		h.place = len(l.reservations[key])
		l.reservations[key] = append(l.reservations[key], h)
	}
	if h.Pod.Name != "" {
		l.listByPod(h)
	}
	l.attach(h, len(l.nodes[h.node].holds))
	return h
}

// setExpiry lets a hold expire at its deadline, if it has one.
func (l *account) setExpiry(h *hold) {
	switch {
	case !h.Deadline.IsZero():
		l.deadlines.set(&h.expiry, nanos(h.Deadline))
	case h.expiry.index >= 0:
		l.deadlines.remove(&h.expiry)
	}
}

// dropHold takes a hold off its node's account for good. Its users stay.
func (l *account) dropHold(h *hold) {
	l.detach(h)
	l.discard(h)
}

// discard makes a hold that is off its node's account one that never comes back.
func (l *account) discard(h *hold) {
	h.consumers, h.guests = nil, nil
	if h.InMemory() {
		l.memoryCount--
	} else {
		delete(l.holds, h.Ref)
		l.unlist(h)
	}
	if h.Pod.Name != "" {
		l.unlistByPod(h)
	}
	if h.expiry.index >= 0 {
		l.deadlines.remove(&h.expiry)
	}
}

// recycle lets a slot in memory that was dropped be used for another one.
func (l *account) recycle(h *hold) {
	if h.InMemory() {
		*h = hold{samePod: l.holdPool}
		l.holdPool = h
	}
}

// listByPod makes a hold findable by its pod: one in memory before the others, the
// others in the order they were made.
func (l *account) listByPod(h *hold) {
	key := h.Pod.key()
	first := l.holdsByPod[key]
	if first == nil || h.InMemory() {
		h.samePod, l.holdsByPod[key] = first, h
		return
	}
	last := first
	for last.samePod != nil {
		last = last.samePod
	}
	last.samePod = h
}

func (l *account) unlistByPod(h *hold) {
	key := h.Pod.key()
	switch first := l.holdsByPod[key]; {
	case first != h:
		for first.samePod != h {
			first = first.samePod
		}
		first.samePod = h.samePod
	case h.samePod == nil:
		delete(l.holdsByPod, key)
	default:
		l.holdsByPod[key] = h.samePod
	}
	h.samePod = nil
}

// keptFor returns the holds that are kept for one pod alone.
func (l *account) keptFor(pod PodRef) []*hold {
	var kept []*hold
	for h := l.holdsByPod[pod.key()]; h != nil; h = h.samePod {
		if h.isFor(pod) {
			kept = append(kept, h)
		}
	}
	return kept
}

// inMemory returns the slot that is kept for a pod in memory, or nil. A pod that is gone
// cannot be the one that a slot made for its name waits for.
func (l *account) inMemory(pod PodRef) *hold {
	if len(l.holdsByPod) == 0 {
		return nil
	}
	for h := l.holdsByPod[pod.key()]; h != nil && h.InMemory(); h = h.samePod {
		if h.isFor(pod) && (h.Pod.UID == pod.UID || pod.UID == "" || !l.gone.has(pod.UID)) {
			return h
		}
	}
	return nil
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
	node := h.node
	l.dropHold(h)
	l.recordHold(why, h, pod)
	l.recycle(h)
	l.dropIfEmpty(node)
}

// settle does what a hold has waited for until a claim that uses it stopped being bound.
func (l *account) settle(h *hold, c *claim) {
	switch {
	case l.holds[h.Ref] != h: // ended by something else meanwhile
	case c != nil && h.Policy == Once && c.state == Bound:
		l.endHold(h, HoldConsumed, c.pod)
	case h.overdue && !h.binding():
		l.endHold(h, HoldExpired, PodRef{})
	}
}
