package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	nodeKnown    uint8 = 1 << iota // the API server has such a node
	nodeCordoned                   // its spec.unschedulable is set
	hasDevices                     // it has devices
	usesDRA                        // DRA gives, or has given, what pods ask for by count there
	hasNominated                   // something is kept for pods that are nominated for it
)

// node is the account of one node. A node that was deleted, or not seen yet,
// stays as long as something is on it: when it comes back that still counts.
type node struct {
	first, last *entry
	slots       int  // of reservations
	saturated   bool // a sum had no int64: use must be recounted on release
	ports       map[resources.PortKey][]portUse
	uid         types.UID
	labels      map[string]string
	allocatable []int64            // by column; shorter than the table where the rest is 0
	dra         []resources.Column // what DRA gives devices for
	left        []resources.Column // of these, what is left to it now
	drawn       []resources.Column // what entries have by DRA, of each its own
	devices     *nodeDevices
	nominated   []*nomination
	details     *EventDetails // of its last event
}

// portUse is the use of a host port.
type portUse struct {
	resources.HostPort

	by *entry
}

func at(row []int64, c resources.Column) int64 {
	if int(c) < len(row) {
		return row[c]
	}
	return 0
}

// row returns the free amounts of a node.
func (l *account) row(i int32) []int64 {
	return l.free[int(i)*l.stride : (int(i)+1)*l.stride]
}

// usedRow returns the amounts that are used on a node.
func (l *account) usedRow(i int32) []int64 {
	return l.used[int(i)*l.stride : (int(i)+1)*l.stride]
}

// ensureNode returns the index of a node and makes an account for it, not known to exist yet, where there is none.
func (l *account) ensureNode(name string) int32 {
	if i, ok := l.nodeIndex[name]; ok {
		return i
	}
	var i int32
	if n := len(l.freeIndex); n > 0 {
		i = l.freeIndex[n-1]
		l.freeIndex = l.freeIndex[:n-1]
	} else {
		i = int32(len(l.nodes)) //nolint:gosec // there are fewer nodes
		l.nodes, l.names = append(l.nodes, nil), append(l.names, "")
		l.flags = append(l.flags, 0)
		l.free = append(l.free, make([]int64, l.stride)...)
		l.used = append(l.used, make([]int64, l.stride)...)
	}
	l.nodes[i], l.names[i] = &node{}, name
	l.nodeIndex[name] = i
	return i
}

// dropIfEmpty forgets a node that does not exist and has nothing left on it.
func (l *account) dropIfEmpty(i int32) {
	n := l.nodes[i]
	if n == nil || l.flags[i]&nodeKnown != 0 || n.first != nil || n.devices != nil {
		return
	}
	delete(l.nodeIndex, l.names[i])
	l.nodes[i], l.names[i] = nil, ""
	l.flags[i] = 0
	l.freeIndex = append(l.freeIndex, i)
}

// widen makes the rows long enough for every column the table has given out.
func (l *account) widen() {
	need := l.table.Len()
	if need <= l.stride {
		return
	}
	stride := (need + 7) &^ 7
	free, used := make([]int64, len(l.nodes)*stride), make([]int64, len(l.nodes)*stride)
	for i := range l.nodes {
		copy(free[i*stride:], l.row(int32(i)))
		copy(used[i*stride:], l.usedRow(int32(i)))
	}
	l.free, l.used, l.stride = free, used, stride
}

// refresh recomputes the free amounts of a node.
func (l *account) refresh(i int32) {
	n, free, used := l.nodes[i], l.row(i), l.usedRow(i)
	if l.flags[i]&usesDRA != 0 {
		n.leave()
	}
	for c := range free {
		free[c] = resources.Sub(n.offered(resources.Column(c)), used[c])
	}
	if l.flags[i]&hasDevices != 0 {
		l.refreshCounted(i)
	}
}

// use adds (sign 1) or takes back (sign -1) a request's amounts.
func (l *account) use(i int32, req *resources.Request, sign int64) {
	if last := len(req.Amounts) - 1; last >= 0 && int(req.Amounts[last].Column) >= l.stride {
		l.widen()
	}
	free, used := l.row(i), l.usedRow(i)
	for _, a := range req.Amounts {
		value := sign * a.Value
		sum, exact := resources.Add(used[a.Column], value)
		used[a.Column] = sum
		if !exact {
			l.nodes[i].saturated = true
			l.refresh(i)
			continue
		}
		free[a.Column] -= value // exact, as the sum is and allocatable is not below 0
	}
	switch flags := l.flags[i]; {
	case flags&usesDRA != 0:
		l.refreshDRA(i)
	case flags&hasDevices != 0:
		l.refreshCounted(i)
	}
}

// unuse takes a request off a node, once no entry of the node holds it any more: a node
// whose sums saturated is recounted from what is left.
func (l *account) unuse(i int32, req *resources.Request) {
	if l.nodes[i].saturated {
		l.recount(i)
		return
	}
	l.use(i, req, -1)
}

// occupy records what uses a host port.
func (n *node) occupy(p resources.HostPort, by *entry) {
	if n.ports == nil {
		n.ports = map[resources.PortKey][]portUse{}
	}
	n.ports[p.PortKey] = append(n.ports[p.PortKey], portUse{p, by})
}

// vacate takes that back.
func (n *node) vacate(p resources.HostPort, by *entry) {
	uses := slices.DeleteFunc(n.ports[p.PortKey], func(u portUse) bool { return u.by == by })
	if len(uses) == 0 {
		delete(n.ports, p.PortKey)
	} else {
		n.ports[p.PortKey] = uses
	}
}

// link puts an entry into the node's list, between those that it names as its neighbors.
// What was taken out last and is put back first comes back to its place.
func (n *node) link(e *entry) {
	if e.prev != nil {
		e.prev.next = e
	} else {
		n.first = e
	}
	if e.next != nil {
		e.next.prev = e
	} else {
		n.last = e
	}
}

func (n *node) unlink(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		n.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		n.last = e.prev
	}
}

// reservedSlots lists the slots of reservations on a node.
func (n *node) reservedSlots() (list []*entry) {
	if n.slots == 0 {
		return nil
	}
	for e := n.first; e != nil; e = e.next {
		if e.slot != nil {
			list = append(list, e)
		}
	}
	return list
}

// recount sums a node's use anew: a sum that saturated cannot be taken back.
func (l *account) recount(i int32) {
	n := l.nodes[i]
	n.saturated = false
	clear(l.usedRow(i))
	l.refresh(i)
	for e := n.first; e != nil; e = e.next {
		l.use(i, e.counts, 1)
	}
}

// overcommitted reports whether a known node has more used than allocatable.
func (l *account) overcommitted(i int32) bool {
	if l.flags[i]&nodeKnown == 0 {
		return false
	}
	for _, free := range l.row(i) {
		if free < 0 {
			return true
		}
	}
	return false
}
