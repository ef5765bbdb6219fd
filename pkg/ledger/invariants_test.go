package ledger

import (
	"fmt"
	"math"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// CheckInvariants recounts everything from the allocations and returns an error that names the first difference from
// what the ledger keeps. Tests call it after every step; it walks the whole ledger, so nothing else should.
func (l Reader) CheckInvariants() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var states [numStates]int
	total := 0
	for i, n := range l.nodes {
		if n == nil {
			continue
		}
		count, err := l.checkNode(int32(i), &states)
		if err != nil {
			return fmt.Errorf("node %s: %w", l.names[i], err)
		}
		total += count
	}
	if states != l.stateCount {
		return fmt.Errorf("allocations by state are %v, counted as %v", states, l.stateCount)
	}
	indexed := len(l.byUID)
	for _, e := range l.named {
		if e.isAllocation() && e.pod.UID == "" {
			indexed++
		}
	}
	if indexed != total {
		return fmt.Errorf("%d allocations on nodes, %d indexed", total, indexed)
	}
	if err := l.checkSlotIndexes(); err != nil {
		return err
	}
	if err := l.checkDeviceOwners(); err != nil {
		return err
	}
	if err := l.checkBudgets(); err != nil {
		return err
	}
	return l.checkDeadlines()
}

// checkBudgets recounts what every budget holds.
func (l *account) checkBudgets() error {
	for kind := range numBudgets {
		all, again := &l.budgets[kind], map[string]*budget{}
		for _, n := range l.nodes {
			for e := n.begin(); e != nil; e = e.next {
				name := e.budgetName(kind)
				if e.budgets[kind] != all.byName[name] || (name != "") != (e.budgets[kind] != nil) {
					return fmt.Errorf("%s%s does not count in the budget of %s", e.ref(), e.pod, name)
				}
				if again[name] == nil {
					again[name] = &budget{}
				}
				sum := again[name]
				sum.count(e, 1)
			}
		}
		for name, b := range all.byName {
			sum := again[name]
			if sum == nil {
				sum = &budget{}
			}
			if b.entries != sum.entries || b.slots != sum.slots || b.entries == 0 {
				return fmt.Errorf("the budget of %s has %d entries and %d slots, counted as %d and %d", name, sum.entries,
					sum.slots, b.entries, b.slots)
			}
			for c := range l.table.Len() {
				if totalsAt(b.used, c) != totalsAt(sum.used, c) || totalsAt(b.kept, c) != totalsAt(sum.kept, c) {
					return fmt.Errorf("the budget of %s holds other amounts of column %d than are kept", name, c)
				}
			}
		}
	}
	return nil
}

// begin returns the first entry of a node, or nil.
func (n *node) begin() *entry {
	if n == nil {
		return nil
	}
	return n.first
}

func totalsAt(totals []total, c int) total {
	if c < len(totals) {
		return totals[c]
	}
	return total{}
}

// recounted is what the entries of a node add up to.
type recounted struct {
	used                     []int64
	ports, allocations, kept int
}

func (l *account) checkNode(i int32, states *[numStates]int) (allocations int, err error) {
	n := l.nodes[i]
	if at, ok := l.nodeIndex[l.names[i]]; !ok || at != i {
		return 0, fmt.Errorf("is at index %d, found at %d (%v)", i, at, ok)
	}
	sum := recounted{used: make([]int64, l.stride)}
	var last *entry
	for e := n.first; e != nil; last, e = e, e.next {
		if e.node != i || e.away || e.prev != last {
			return 0, fmt.Errorf("what %s has is not linked both ways, or was not put back", e.pod)
		}
		if err := l.checkEntry(e, states, &sum); err != nil {
			return 0, fmt.Errorf("%s%s: %w", e.ref(), e.pod, err)
		}
	}
	if n.last != last || n.slots != sum.kept {
		return 0, fmt.Errorf("has a list that ends elsewhere, or %d slots of reservations, counted as %d", sum.kept, n.slots)
	}
	if n.first == nil && n.devices == nil && l.flags[i]&nodeKnown == 0 {
		return 0, fmt.Errorf("is kept though nothing needs it")
	}
	for _, uses := range n.ports {
		sum.ports -= len(uses)
	}
	if sum.ports != 0 {
		return 0, fmt.Errorf("host ports of entries and of the node differ by %d", sum.ports)
	}
	for col, used := range sum.used {
		free := l.freeByHand(n, resources.Column(col), used)
		if l.usedRow(i)[col] != used || l.row(i)[col] != free {
			return 0, fmt.Errorf("uses %d of column %d and has %d free, kept as %d and %d", used, col, free, l.usedRow(i)[col],
				l.row(i)[col])
		}
	}
	return sum.allocations, l.checkDevices(n)
}

// goneByHand are the devices of a resource that somebody on a node has and that are not there any more.
func (n *node) goneByHand(resource string) map[string]bool {
	gone := map[string]bool{}
	for e := n.first; e != nil; e = e.next {
		for _, g := range e.given() {
			for _, id := range g.IDs {
				if _, there := n.devices.pool.Find(resource, id); g.Resource == resource && !there {
					gone[id] = true
				}
			}
		}
	}
	return gone
}

// givenByDRAByHand is what DRA gives of a resource: all that is asked for, or, where it is not left to it now, what
// pods have by it.
func (n *node) givenByDRAByHand(col resources.Column) (given int64) {
	left := slices.Contains(n.dra, col)
	for e := n.first; e != nil; e = e.next {
		if slices.Contains(e.request.ByDRA, col) {
			given, _ = resources.Add(given, e.counts.Value(col))
		} else if e.state != NoAllocation && e.version > 0 && e.request.Value(col) > 0 {
			left = false
		}
	}
	if left {
		return math.MaxInt64
	}
	return given
}

// freeByHand is what is left of a resource, by its devices where the node has some: those that are not to be given
// out, or are had by who does not ask for the resource, are nobody's to have.
func (l *account) freeByHand(n *node, col resources.Column, used int64) int64 {
	offered := at(n.allocatable, col)
	if offered == 0 {
		offered = n.givenByDRAByHand(col)
	}
	if n.devices != nil {
		for _, c := range n.devices.counted {
			if c.column != col {
				continue
			}
			all, lost := int64(0), int64(0)
			for k := range n.devices.pool.Len() {
				d := n.devices.pool.Device(k)
				if d.Resource != c.resource {
					continue
				}
				all++
				had, asked := false, false
				for e := n.first; e != nil; e = e.next {
					for _, g := range e.given() {
						if (g.Resource == d.Resource || g.Resource == "") && slices.Contains(g.IDs, d.ID) {
							had, asked = true, asked || g.Resource != "" || e.request.Value(col) > 0
						}
					}
				}
				if !asked && (had || d.Unschedulable) {
					lost++
				}
			}
			if offered == 0 {
				offered = all + int64(len(n.goneByHand(c.resource)))
			}
			return min(resources.Sub(offered, used), max(0, resources.Sub(max(offered, all)-lost, used)))
		}
	}
	return resources.Sub(offered, used)
}

func (l *account) checkEntry(e *entry, states *[numStates]int, sum *recounted) error {
	sum.ports += len(e.request.Ports)
	for _, a := range e.request.Amounts {
		value := a.Value
		if e.slot != nil { // max(slot, asked) = asked + what the slot has beyond it
			value = max(0, resources.Sub(a.Value, e.asked(a.Column)))
		}
		sum.used[a.Column], _ = resources.Add(sum.used[a.Column], value)
	}
	switch {
	case e.within != nil && !slices.Contains(e.within.slot.users, e):
		return fmt.Errorf("uses slot %s, which does not know it", e.within.ref())
	case e.slot != nil:
		sum.kept++
		return l.checkSlot(e)
	case !e.isAllocation():
		return l.checkInMemory(e)
	case l.allocationOf(e.pod) != e:
		return fmt.Errorf("the allocation is not found")
	}
	states[e.state]++
	sum.allocations++
	return nil
}

func (l *account) checkSlot(e *entry) error {
	for _, u := range e.slot.users {
		if u.within != e || u.node != e.node || u.slot != nil || u.pod.Namespace != e.slot.ref.Namespace {
			return fmt.Errorf("its user %s is not linked to it", u.pod)
		}
	}
	used := len(e.slot.users)
	switch {
	case l.slots[e.slot.ref] != e || !slices.Contains(l.reservations[e.slot.ref.reservation()], e):
		return fmt.Errorf("is not indexed")
	case e.within != nil:
		return fmt.Errorf("is part of another")
	case e.pod.Name != "" && !l.isListed(e):
		return fmt.Errorf("is not indexed by its pod")
	case e.slot.policy == Once && (used > 1 || (used == 1 && e.slot.users[0].state == Bound)):
		return fmt.Errorf("is used more than once")
	case e.overdue && !e.binding():
		return fmt.Errorf("should have expired")
	case e.deadline != never && !e.overdue && e.due < 0:
		return fmt.Errorf("has no place among the deadlines")
	}
	return nil
}

func (l *account) checkInMemory(e *entry) error {
	switch {
	case e.overdue || e.pod.Name == "" || !l.isListed(e):
		return fmt.Errorf("waits for a bind, or is not indexed by its pod")
	case e.pod.UID != "" && l.byUID[e.pod.UID] != nil:
		return fmt.Errorf("is kept for a pod that has an allocation")
	case (e.deadline == never) != (e.due < 0):
		return fmt.Errorf("is not among the deadlines, or should not be")
	}
	return nil
}

func (l *account) isListed(e *entry) bool {
	for o := l.named[e.pod.key()]; o != nil; o = o.sameName {
		if o == e {
			return e.listed
		}
	}
	return false
}

// checkSlotIndexes finds slots of reservations that are indexed and on no node.
func (l *account) checkSlotIndexes() error {
	onNodes, inReservations := 0, 0
	for _, n := range l.nodes {
		if n != nil {
			onNodes += n.slots
		}
	}
	for _, all := range l.reservations {
		inReservations += len(all)
	}
	if onNodes != len(l.slots) || inReservations != onNodes {
		return fmt.Errorf("%d slots on nodes, %d indexed, %d in reservations", onNodes, len(l.slots), inReservations)
	}
	return nil
}

func (l *account) checkDeadlines() error {
	heap := l.deadlines
	if len(heap) > len(l.slots)+l.memoryCount {
		return fmt.Errorf("%d deadlines for %d slots and %d slots in memory", len(heap), len(l.slots), l.memoryCount)
	}
	for k, e := range heap {
		if int(e.due) != k {
			return fmt.Errorf("deadline %d says it is at %d", k, e.due)
		}
		if e.isAllocation() || (l.slots[e.ref()] != e && !l.isListed(e)) {
			return fmt.Errorf("deadline %d is of slot %s for %s, which is gone", k, e.ref(), e.pod)
		}
		if parent := heap[(k-1)/2]; k > 0 && parent.deadline > e.deadline {
			return fmt.Errorf("deadline %d is sooner than its parent", k)
		}
	}
	return nil
}

// checkDevices recounts which devices of a node are free, one by one.
func (l *account) checkDevices(n *node) error {
	if n.devices == nil {
		return nil
	}
	for k := range n.devices.pool.Len() {
		d := n.devices.pool.Device(k)
		is := func(g GivenDevices) bool {
			return (g.Resource == d.Resource || g.Resource == "") && slices.Contains(g.IDs, d.ID)
		}
		free := !d.Unschedulable
		for e := n.first; e != nil; e = e.next {
			free = free && !slices.ContainsFunc(e.given(), is)
		}
		if kept := n.devices.free.Has(k); kept != free {
			return fmt.Errorf("device %s is free: %v, kept as %v", d.Name, free, kept)
		}
	}
	return nil
}

// checkDeviceOwners recounts who has which claims of devices.
func (l *account) checkDeviceOwners() error {
	owned := 0
	for _, n := range l.nodes {
		if n == nil {
			continue
		}
		for e := n.first; e != nil; e = e.next {
			for _, g := range e.given() {
				if g.Claim.Name == "" {
					continue
				}
				owned++
				if !slices.Contains(l.deviceOwners[g.Claim.key()], deviceOwner{g.Claim.UID, e}) {
					return fmt.Errorf("claim of devices %s is had by who is not known to have it", g.Claim)
				}
			}
		}
	}
	for key, owners := range l.deviceOwners {
		if owned -= len(owners); len(owners) == 0 {
			return fmt.Errorf("claim of devices %s/%s is kept though nobody has it", key.namespace, key.name)
		}
	}
	if owned != 0 {
		return fmt.Errorf("%d more claims of devices are had than are known to be", owned)
	}
	return nil
}
