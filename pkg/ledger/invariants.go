package ledger

import (
	"fmt"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// CheckInvariants recounts everything from the claims and returns an error that
// names the first difference from what the ledger keeps. Tests call it after
// every step; it walks the whole ledger, so nothing else should.
func (l *Ledger) CheckInvariants() error {
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
	return l.checkDeadlines(states[Reserved])
}

func (l *Ledger) checkNode(i int32, states *[numStates]int) (int, error) {
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
	}
	if count != n.claimCount {
		return 0, fmt.Errorf("has %d claims, counted as %d", count, n.claimCount)
	}
	if count == 0 && l.flags[i]&nodeKnown == 0 {
		return 0, fmt.Errorf("is kept though nothing needs it")
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

func (l *Ledger) checkDeadlines(reserved int) error {
	heap := l.deadlines.claims
	if len(heap) > reserved {
		return fmt.Errorf("%d deadlines for %d reserved claims", len(heap), reserved)
	}
	for k, c := range heap {
		if c.state != Reserved || int(c.heapIndex) != k || l.lookup(c.pod) != c {
			return fmt.Errorf("deadline %d is of %s in state %s", k, c.pod, c.state)
		}
		if parent := heap[(k-1)/2]; k > 0 && parent.deadline > c.deadline {
			return fmt.Errorf("deadline %d is sooner than its parent", k)
		}
	}
	return nil
}
