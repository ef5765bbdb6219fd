package ledger

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// totalsAtOnce is how many nodes are added up under one lock: a decision waits for no more.
const totalsAtOnce = 32

// Totals is what all nodes that exist have together, from which metrics are made.
type Totals struct {
	// Amounts are by resource.
	Amounts map[v1.ResourceName]*Total
	// Reserved is what is kept by slots and used by allocations that are Binding, by scheduler and resource.
	Reserved map[ReservedBy]int64
	// Devices are the devices observed, by resource.
	Devices map[string]*DeviceTotal
}

// Total is one resource over all nodes: milli-CPU for cpu, else its own unit.
type Total struct {
	Allocatable, Bound, Reserved int64
	// Free is what is left on nodes that are not overcommitted, and Overcommitted what is used beyond what there is on
	// the others.
	Free, Overcommitted int64
}

// ReservedBy is a scheduler and a resource.
type ReservedBy struct {
	Scheduler string
	Resource  v1.ResourceName
}

// DeviceTotal counts devices of one resource. The rest of them may not be given out.
type DeviceTotal struct{ All, Used, Free int }

// Totals adds up all nodes that exist. It looks at some nodes at a time, so that decisions go on in between: what
// changes meanwhile may be counted before or after.
func (l Reader) Totals() Totals {
	t := Totals{
		Amounts: map[v1.ResourceName]*Total{}, Reserved: map[ReservedBy]int64{}, Devices: map[string]*DeviceTotal{},
	}
	for from := int32(0); l.addTotals(&t, from); from += totalsAtOnce {
	}
	return t
}

// addTotals adds up some nodes, and reports whether there may be more.
func (l Reader) addTotals(t *Totals, from int32) (more bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	to := min(from+totalsAtOnce, int32(len(l.nodes))) //nolint:gosec // there are fewer nodes
	for i := from; i < to; i++ {
		if l.flags[i]&nodeKnown != 0 {
			l.addNode(t, i)
		}
	}
	return int(to) < len(l.nodes)
}

func (l *account) addNode(t *Totals, i int32) {
	n := l.nodeView(i)
	for _, a := range n.Amounts {
		total := cmp.Or(t.Amounts[a.Resource], &Total{})
		t.Amounts[a.Resource] = total
		add(&total.Allocatable, a.Allocatable)
		add(&total.Bound, a.Bound)
		add(&total.Reserved, a.Reserved)
		add(&total.Free, max(a.Free, 0))
		add(&total.Overcommitted, max(resources.Sub(0, a.Free), 0))
	}
	for k := range n.Devices {
		d := &n.Devices[k]
		total := cmp.Or(t.Devices[d.Resource], &DeviceTotal{})
		t.Devices[d.Resource] = total
		if total.All++; len(d.Pods) > 0 || d.Slot.Name != "" {
			total.Used++
		} else if d.Free {
			total.Free++
		}
	}
	for e := l.nodes[i].first; e != nil; e = e.next {
		for _, a := range e.counts.Amounts {
			if e.state != Bound && !l.leftToDRA(i, a.Column) {
				by := ReservedBy{e.scheduler, l.table.Name(a.Column)}
				t.Reserved[by], _ = resources.Add(t.Reserved[by], a.Value)
			}
		}
	}
}

func add(sum *int64, value int64) { *sum, _ = resources.Add(*sum, value) }
