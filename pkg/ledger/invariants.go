package ledger

import (
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// CheckInvariants recounts everything from the claims and returns an error that
// names the first difference from what the ledger keeps. Tests call it after
// every step; it walks the whole ledger, so nothing else should.
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
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		total += count
	}
	if states != l.stateCount {
		return fmt.Errorf("claims by state are %v, counted as %v", states, l.stateCount)
	}
	indexed := len(l.byUID)
	for _, c := range l.byName {
		if c.pod.UID == "" {
			indexed++
		}
	}
	if indexed != total {
		return fmt.Errorf("%d claims on nodes, %d indexed", total, indexed)
	}
	if err := l.checkHoldIndexes(); err != nil {
		return err
	}
	if err := l.checkDeviceOwners(); err != nil {
		return err
	}
	return l.checkDeadlines()
}

func (l *account) checkNode(i int32, states *[numStates]int) (int, error) {
	n := l.nodes[i]
	if at, ok := l.nodeIndex[n.name]; !ok || at != i {
		return 0, fmt.Errorf("is at index %d, found at %d (%v)", i, at, ok)
	}
	used := make([]int64, l.stride)
	ports, count := 0, 0
	for c := n.claims; c != nil; c = c.next {
		if c.node != i || l.lookup(c.pod) != c {
			return 0, fmt.Errorf("claim of %s is not linked both ways", c.pod)
		}
		states[c.state]++
		count++
		ports += len(c.request.Ports)
		for _, a := range c.request.Amounts {
			used[a.Column], _ = resources.Add(used[a.Column], a.Value)
		}
		if c.away {
			return 0, fmt.Errorf("claim of %s was not put back", c.pod)
		}
		if c.hold != nil && !slices.Contains(c.hold.consumers, c) {
			return 0, fmt.Errorf("claim of %s uses hold %s, which does not know it", c.pod, c.hold.Ref)
		}
	}
	for _, h := range n.holds {
		if err := l.checkHold(i, h); err != nil {
			return 0, fmt.Errorf("hold %s: %w", h.Ref, err)
		}
		ports += len(h.Request.Ports)
		for _, a := range h.Request.Amounts { // max(hold, asked) = asked + what the hold has beyond it
			beyond := max(0, resources.Sub(a.Value, h.asked(a.Column)))
			used[a.Column], _ = resources.Add(used[a.Column], beyond)
		}
	}
	if count != n.claimCount {
		return 0, fmt.Errorf("has %d claims, counted as %d", count, n.claimCount)
	}
	if count == 0 && len(n.holds) == 0 && n.devices == nil && l.flags[i]&nodeKnown == 0 {
		return 0, fmt.Errorf("is kept though nothing needs it")
	}
	if err := l.checkDevices(n); err != nil {
		return 0, err
	}
	for _, uses := range n.ports {
		ports -= len(uses)
	}
	if ports != 0 {
		return 0, fmt.Errorf("host ports of claims and of the node differ by %d", ports)
	}
	for col := range l.stride {
		c := resources.Column(col)
		if kept := l.usedRow(i)[col]; kept != used[col] {
			return 0, fmt.Errorf("uses %d of column %d, counted as %d", used[col], col, kept)
		}
		if free := resources.Sub(at(n.allocatable, c), used[col]); free != l.row(i)[col] {
			return 0, fmt.Errorf("has %d free of column %d, kept as %d", free, col, l.row(i)[col])
		}
	}
	return count, nil
}

func (l *account) checkHold(i int32, h *hold) error {
	for _, c := range h.consumers {
		if c.hold != h || c.node != i || c.pod.Namespace != h.Ref.Namespace {
			return fmt.Errorf("its consumer %s is not linked to it", c.pod)
		}
	}
	for _, g := range h.guests {
		if g.within != h || g.node != i || !g.InMemory() || !slices.Contains(l.nodes[i].holds, g) {
			return fmt.Errorf("the slot for %s is not linked to it", g.Pod)
		}
	}
	if h.InMemory() {
		return l.checkInMemory(h)
	}
	switch {
	case h.node != i || l.nodes[i].name != h.Node:
		return fmt.Errorf("is on node %d, listed on %d", h.node, i)
	case l.holds[h.Ref] != h || !slices.Contains(l.reservations[h.Ref.reservation()], h):
		return fmt.Errorf("is not indexed")
	case h.away || h.within != nil:
		return fmt.Errorf("was not put back, or is part of another")
	case h.Pod.Name != "" && !l.isListedByPod(h):
		return fmt.Errorf("is not indexed by its pod")
	case h.Policy == Once && (len(h.consumers)+len(h.guests) > 1 || (len(h.consumers) == 1 && h.consumers[0].state == Bound)):
		return fmt.Errorf("is used more than once")
	case h.overdue && !h.binding():
		return fmt.Errorf("should have expired")
	case !h.Deadline.IsZero() && !h.overdue && h.expiry.index < 0:
		return fmt.Errorf("has no place among the deadlines")
	}
	return nil
}

func (l *account) checkInMemory(h *hold) error {
	switch {
	case h.away || h.overdue:
		return fmt.Errorf("was not put back, or waits for a bind")
	case h.used() || h.Policy != Once || h.Preemptible || h.Pod.Name == "":
		return fmt.Errorf("is in memory, and not for one pod alone")
	case h.within != nil && (!slices.Contains(h.within.guests, h) || h.within.InMemory()):
		return fmt.Errorf("is part of %s, which does not know it", h.within.Ref)
	case !l.isListedByPod(h):
		return fmt.Errorf("of %s is not indexed by its pod", h.Pod)
	case h.Pod.UID != "" && l.byUID[h.Pod.UID] != nil:
		return fmt.Errorf("is kept for %s, which has a claim", h.Pod)
	case h.Deadline.IsZero() != (h.expiry.index < 0):
		return fmt.Errorf("of %s is not among the deadlines, or should not be", h.Pod)
	}
	return nil
}

func (l *account) isListedByPod(h *hold) bool {
	for o := l.holdsByPod[h.Pod.key()]; o != nil; o = o.samePod {
		if o == h {
			return true
		}
	}
	return false
}

// checkHoldIndexes finds holds that are indexed and on no node.
func (l *account) checkHoldIndexes() error {
	onNodes, inReservations := -l.memoryCount, 0
	for _, n := range l.nodes {
		if n != nil {
			onNodes += len(n.holds)
		}
	}
	for _, holds := range l.reservations {
		inReservations += len(holds)
	}
	if onNodes != len(l.holds) || inReservations != onNodes {
		return fmt.Errorf("%d holds on nodes, %d indexed, %d in reservations", onNodes, len(l.holds), inReservations)
	}
	return nil
}

func (l *account) checkDeadlines() error {
	heap := l.deadlines.heap
	if len(heap) > len(l.holds)+l.memoryCount {
		return fmt.Errorf("%d deadlines for %d holds and %d slots in memory", len(heap), len(l.holds), l.memoryCount)
	}
	for k, d := range heap {
		if int(d.index) != k {
			return fmt.Errorf("deadline %d says it is at %d", k, d.index)
		}
		if h := d.hold; !slices.Contains(l.nodes[h.node].holds, h) {
			return fmt.Errorf("deadline %d is of hold %s for %s, which is gone", k, h.Ref, h.Pod)
		}
		if parent := heap[(k-1)/2]; k > 0 && parent.at > d.at {
			return fmt.Errorf("deadline %d is sooner than its parent", k)
		}
	}
	return nil
}
