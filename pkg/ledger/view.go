package ledger

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// NodeView is a node's account as readers see it.
type NodeView struct {
	Name          string
	UID           types.UID
	Exists        bool // false: deleted, or not seen yet, but pods are on it
	Unschedulable bool
	Allocations   int
	Labels        map[string]string // must not be changed
	// Amounts has an entry for every resource the node offers or its allocations use, ordered by name.
	Amounts []AmountView
	// Devices are the node's devices, ordered by name.
	Devices []DeviceView
}

// AmountView is one resource of a node: milli-CPU for cpu, else its own unit.
type AmountView struct {
	Resource    v1.ResourceName
	Allocatable int64
	Bound       int64 // used by pods that are bound
	Reserved    int64 // used by allocations that are Binding, and kept by slots
	// Free is Allocatable - Bound - Reserved; negative if overcommitted. For a resource that the node has devices of, it
	// is less where some are not to be given out, and counts the devices where Allocatable is 0.
	Free int64
}

// Overcommitted reports whether more than allocatable is used of any resource.
func (n *NodeView) Overcommitted() bool {
	return n.Exists && slices.ContainsFunc(n.Amounts, func(a AmountView) bool { return a.Free < 0 })
}

// AllocationView is an allocation as readers see it.
type AllocationView struct {
	Pod       PodRef
	Node      string
	State     State
	Scheduler string
	Priority  int32
	Request   *resources.Request // must not be changed
	Slot      SlotRef            // what the pod uses, or empty
	Given     []GivenDevices     // must not be changed; nil for a pod without devices
	Asked     string             // DeviceRequest.Asked of what it was given for
	// Growing says that a resize was granted that the pod has not been seen with: Request may be more than it asks for.
	Growing bool
}

// Snapshot is the whole account at one revision, from which a watcher starts, or that of one node.
type Snapshot struct {
	Revision    uint64
	Nodes       []NodeView
	Allocations []AllocationView
	Slots       []SlotView
}

// Nodes returns all nodes, ordered by name, and the revision they are of.
func (l Reader) Nodes() ([]NodeView, uint64) {
	l.mu.RLock()
	views, revision := l.nodeViews(), l.revision
	l.mu.RUnlock()
	sortNodes(views)
	return views, revision
}

// Node returns one node and its allocations, ordered by namespace and name; ok is false where there is none.
func (l Reader) Node(name string) (view NodeView, allocations []AllocationView, ok bool) {
	s, ok := l.NodeSnapshot(name)
	if !ok {
		return NodeView{}, nil, false
	}
	return s.Nodes[0], s.Allocations, true
}

// NodeSnapshot returns one node and all that is on it at one revision, ordered as in a Snapshot; ok is
// false where there is no such node.
func (l Reader) NodeSnapshot(name string) (s Snapshot, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := l.nodeIndex[name]
	if !ok {
		return Snapshot{}, false
	}
	s = Snapshot{Revision: l.revision, Nodes: []NodeView{l.nodeView(i)}, Allocations: l.appendAllocations(nil, i)}
	for e := l.nodes[i].first; e != nil; e = e.next {
		if !e.isAllocation() {
			s.Slots = append(s.Slots, l.slotView(e))
		}
	}
	sortAllocations(s.Allocations)
	sortSlots(s.Slots)
	return s, true
}

// AppendNodeAllocations returns one node, and appends its allocations to dst in no particular order: for readers that
// look at many nodes often. ok is false where there is no such node.
func (l Reader) AppendNodeAllocations(dst []AllocationView, name string) (view NodeView, allocations []AllocationView,
	ok bool,
) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := l.nodeIndex[name]
	if !ok {
		return NodeView{}, dst, false
	}
	return l.nodeView(i), l.appendAllocations(dst, i), true
}

// Allocations returns all allocations, ordered by namespace and name, and the revision they are of.
func (l Reader) Allocations() ([]AllocationView, uint64) {
	l.mu.RLock()
	views, revision := l.allocationViews(), l.revision
	l.mu.RUnlock()
	sortAllocations(views)
	return views, revision
}

// Allocation returns the allocation of one pod; ok is false where it has none.
func (l Reader) Allocation(pod PodRef) (view AllocationView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if c := l.allocationOf(pod); c != nil {
		return l.allocationView(c), true
	}
	return AllocationView{}, false
}

// Snapshot returns everything at one revision.
func (l Reader) Snapshot() Snapshot {
	l.mu.RLock()
	s := Snapshot{Revision: l.revision, Nodes: l.nodeViews(), Allocations: l.allocationViews(), Slots: l.slotViews()}
	l.mu.RUnlock()
	sortNodes(s.Nodes)
	sortAllocations(s.Allocations)
	sortSlots(s.Slots)
	return s
}

// Stats returns the counts behind the metrics.
func (l Reader) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := Stats{Allocations: l.stateCount, Slots: len(l.slots), InMemory: l.memoryCount, InMemoryExpired: l.memoryExpired}
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 {
			continue
		}
		s.Nodes++
		if l.overcommitted(int32(i)) {
			s.OvercommittedNodes++
		}
	}
	return s
}

// nodeViews returns all nodes in no order, as allocationViews and slotViews do with theirs: decisions wait while the
// account is copied, and do not while the copy is sorted, which takes longer.
func (l *account) nodeViews() []NodeView {
	views := make([]NodeView, 0, len(l.nodeIndex))
	for _, i := range l.nodeIndex {
		views = append(views, l.nodeView(i))
	}
	return views
}

func sortNodes(views []NodeView) {
	slices.SortFunc(views, func(a, b NodeView) int { return cmp.Compare(a.Name, b.Name) })
}

func (l *account) nodeView(i int32) NodeView {
	n := l.nodes[i]
	view := NodeView{
		Name: l.names[i], UID: n.uid, Labels: n.labels,
		Exists: l.flags[i]&nodeKnown != 0, Unschedulable: l.flags[i]&nodeCordoned != 0,
		Devices: n.deviceViews(),
	}
	bound, reserved := make([]int64, l.stride), make([]int64, l.stride)
	for e := n.first; e != nil; e = e.next {
		sums := reserved
		if e.isAllocation() {
			view.Allocations++
		}
		if e.state == Bound {
			sums = bound
		}
		for _, a := range e.counts.Amounts {
			sums[a.Column], _ = resources.Add(sums[a.Column], a.Value)
		}
	}
	for col := range l.table.Len() {
		column := resources.Column(col)
		if !l.counts(i, column) {
			continue
		}
		view.Amounts = append(view.Amounts, AmountView{
			Resource: l.table.Name(column), Allocatable: at(n.allocatable, column),
			Bound: at(bound, column), Reserved: at(reserved, column), Free: at(l.row(i), column),
		})
	}
	slices.SortFunc(view.Amounts, func(a, b AmountView) int { return cmp.Compare(a.Resource, b.Resource) })
	return view
}

// counts reports whether a node offers a resource, or something on it counts for it there: DRA devices are counted by
// their claims.
func (l *account) counts(i int32, column resources.Column) bool {
	return at(l.nodes[i].allocatable, column) != 0 || (at(l.usedRow(i), column) != 0 && !l.leftToDRA(i, column))
}

func (l *account) allocationViews() []AllocationView {
	views := make([]AllocationView, 0, len(l.byUID))
	for i, n := range l.nodes {
		if n != nil {
			views = l.appendAllocations(views, int32(i))
		}
	}
	return views
}

func (l *account) appendAllocations(dst []AllocationView, i int32) []AllocationView {
	for e := l.nodes[i].first; e != nil; e = e.next {
		if e.isAllocation() {
			dst = append(dst, l.allocationView(e))
		}
	}
	return dst
}

func (l *account) allocationView(c *entry) AllocationView {
	asked := ""
	if r := c.asks(); r != nil {
		asked = r.Asked
	}
	return AllocationView{
		Pod: c.pod, Node: l.names[c.node], State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Slot: c.within.ref(), Given: c.given(), Asked: asked,
		Growing: c.growth != nil,
	}
}

func sortAllocations(allocations []AllocationView) {
	slices.SortFunc(allocations, func(a, b AllocationView) int { return comparePods(a.Pod, b.Pod) })
}

// NodeNames returns the names of all nodes that exist.
func (l Reader) NodeNames() (names []string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i, flags := range l.flags {
		if flags&nodeKnown != 0 {
			names = append(names, l.names[i])
		}
	}
	return names
}
