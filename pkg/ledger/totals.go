package ledger

import (
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// totalsAtOnce is how many nodes are added up under one lock: a decision waits for no more.
const totalsAtOnce = 64

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
	t := totals{
		Totals: Totals{
			Amounts: map[v1.ResourceName]*Total{}, Reserved: map[ReservedBy]int64{},
			Devices: map[string]*DeviceTotal{},
		},
	}
	for from := int32(0); l.addTotals(&t, from); from += totalsAtOnce {
	}
	for col, total := range t.columns {
		if *total != (Total{}) {
			t.Amounts[l.table.Name(resources.Column(col))] = total
		}
	}
	return t.Totals
}

// totals are Totals that are being added up.
type totals struct {
	Totals

	columns []*Total
}

// addTotals adds up some nodes, and reports whether there may be more.
func (l Reader) addTotals(t *totals, from int32) (more bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for len(t.columns) < l.stride {
		t.columns = append(t.columns, &Total{})
	}
	to := min(from+totalsAtOnce, int32(len(l.nodes))) //nolint:gosec // there are fewer nodes
	for i := from; i < to; i++ {
		if l.flags[i]&nodeKnown != 0 {
			l.addNode(t, i)
		}
	}
	return int(to) < len(l.nodes)
}

func (l *account) addNode(t *totals, i int32) {
	n := l.nodes[i]
	for e := n.first; e != nil; e = e.next {
		for _, a := range e.counts.Amounts {
			if l.leftToDRA(i, a.Column) {
				continue
			}
			total := t.columns[a.Column]
			if e.state == Bound {
				add(&total.Bound, a.Value)
				continue
			}
			add(&total.Reserved, a.Value)
			by := ReservedBy{e.scheduler, l.table.Name(a.Column)}
			t.Reserved[by], _ = resources.Add(t.Reserved[by], a.Value)
		}
	}
	for col, free := range l.row(i) {
		column := resources.Column(col)
		if !l.counts(i, column) {
			continue
		}
		total := t.columns[col]
		add(&total.Allocatable, at(n.allocatable, column))
		add(&total.Free, max(free, 0))
		add(&total.Overcommitted, max(resources.Sub(0, free), 0))
	}
	t.addDevices(n)
}

// addDevices counts the devices of a node.
func (t *totals) addDevices(n *node) {
	if n.devices == nil {
		return
	}
	used := n.devices.pool.NewSet()
	for e := n.first; e != nil; e = e.next {
		n.devices.visit(e.given(), used.Add)
	}
	for k := range n.devices.pool.Len() {
		name := n.devices.pool.Device(k).Resource
		total := t.Devices[name]
		if total == nil {
			total = &DeviceTotal{}
			t.Devices[name] = total
		}
		total.All++
		if used.Has(k) {
			total.Used++
		} else if n.devices.free.Has(k) {
			total.Free++
		}
	}
}

func add(sum *int64, value int64) { *sum, _ = resources.Add(*sum, value) }
