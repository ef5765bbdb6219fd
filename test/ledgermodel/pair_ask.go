package ledgermodel

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Ask compares every question about a pod that could be placed.
func (p *Pair) Ask(at *ledger.Placement, nodes []string, victims []types.UID) {
	pod := at.Pod
	p.differ("fit", p.Ledger.AppendFit(nil, at, nodes), p.Model.AppendFit(nil, at, nodes))
	may := *at
	may.Preempt = true
	p.differ("preempting fit", p.Ledger.AppendFit(nil, &may, nodes), p.Model.AppendFit(nil, &may, nodes))
	p.Try(ledger.Plan{}, victims, at, nodes)
	for _, node := range nodes {
		p.node(node)
	}
	p.askSlots(at)
	ref, on, ok := p.Ledger.HeldBack(at, nodes)
	wantOn, keepers := p.Model.HeldBack(at, nodes)
	p.differ("held back", ok, len(keepers) > 0)
	p.differ("held back on", on, wantOn)
	p.differ(fmt.Sprintf("held back by %s, one of %v", ref, keepers), slices.Contains(keepers, ref), ok)
	all := map[string]ledger.Verdict{}
	p.Ledger.FitAll(at, func(node string, v ledger.Verdict) bool { all[node] = v; return true })
	p.differ("fit of all nodes", all, p.Model.FitAll(at))
	p.pod(pod)
}

// pod compares what is known of one pod.
func (p *Pair) pod(pod ledger.PodRef) {
	got, allocated := p.Ledger.Allocation(pod)
	slot, kept := p.Ledger.InMemory(pod)
	home, at := p.Ledger.HomeOf(pod)
	own := p.Model.find(pod)
	p.differ("has an allocation", allocated, own != nil && !own.inMemory())
	p.differ("has a slot in memory", kept, own != nil && own.inMemory())
	state, alone := p.Ledger.Standing(pod)
	p.differ("has a slot of its own", alone, (own != nil && own.inMemory()) || (own == nil && p.Model.slotFor(pod) != nil))
	p.differ("has an allocation in a state", state != ledger.NoAllocation, allocated)
	p.differ("is somewhere", at, own != nil)
	switch {
	case own == nil:
		return
	case kept:
		p.differ("slot in memory", slot, own.slot())
	default:
		p.differ("claim", got, own.view())
	}
	p.differ("home", home, own.node)
}

// askSlots compares the questions about slots that a placement brings up.
func (p *Pair) askSlots(at *ledger.Placement) {
	got, ok := p.Ledger.SlotFor(at.Pod)
	own := p.Model.slotFor(at.Pod)
	p.differ("has a slot of its own", ok, own != nil)
	if own != nil {
		p.differ("slot of its own", got.Slot, own.shown())
	}
	var usable []ledger.UsableSlot
	for _, h := range p.Model.usable(at) {
		usable = append(usable, ledger.UsableSlot{Ref: h.Ref, Node: h.Node, Shared: h.Policy != ledger.Once})
	}
	p.differ("usable slots", append([]ledger.UsableSlot(nil), p.Ledger.UsableSlots(at)...), usable)
	for _, ref := range at.Slots {
		var want []ledger.SlotView
		for _, view := range p.Model.SlotViews() {
			if view.Ref.Namespace == ref.Namespace && view.Ref.Name == ref.Name {
				want = append(want, view)
			}
		}
		p.differ("slots of "+ref.String(), p.Ledger.ReservationSlots(ref.Namespace, ref.Name), want)
	}
}

func (p *Pair) node(name string) {
	view, allocations, ok := p.Ledger.Node(name)
	p.differ("has node "+name, ok, p.Model.has(name))
	if !ok || p.Err != nil {
		return
	}
	p.differ("node", view, p.Model.nodeView(name))
	var want []ledger.AllocationView
	for _, c := range p.Model.AllocationViews() {
		if c.Node == name {
			want = append(want, c)
		}
	}
	p.differ("allocations of node "+name, allocations, want)
	var slots []ledger.SlotView
	for _, h := range p.Model.SlotViews() {
		if h.Node == name {
			slots = append(slots, h)
		}
	}
	found, _ := p.Ledger.NodeSnapshot(name)
	p.differ("slots of node "+name, found.Slots, slots)
	before := []ledger.AllocationView{{Node: "before"}}
	view, unsorted, _ := p.Ledger.AppendNodeAllocations(before, name)
	p.differ("node with its allocations", view, p.Model.nodeView(name))
	p.differ("what was there before the allocations", unsorted[:1], before)
	p.differ("number of allocations of node "+name, len(unsorted), len(want)+1)
	for _, c := range want {
		listed := slices.ContainsFunc(unsorted, func(o ledger.AllocationView) bool { return reflect.DeepEqual(o, c) })
		p.differ("allocation listed", listed, true)
	}
}

// usage compares what nodes offer and use of two resources.
func (p *Pair) usage() {
	views := p.Model.NodeViews()
	columns := []resources.Column{resources.Memory, resources.CPU}
	var names, exist, visited []string
	var want []ledger.Usage
	for _, view := range views {
		names = append(names, view.Name)
		if view.Exists {
			exist = append(exist, view.Name)
		}
		for _, c := range columns {
			u := ledger.Usage{Used: count(p.Model.used(view.Name, p.Model.table.Name(c)))}
			if n := p.Model.nodes[view.Name]; n != nil {
				u.Allocatable = n.allocatable[p.Model.table.Name(c)]
			}
			want = append(want, u)
		}
	}
	p.differ("usage", p.Ledger.AppendUsage(nil, names, columns), want)
	p.Ledger.VisitNodes(func(name string) { visited = append(visited, name) })
	slices.Sort(visited)
	p.differ("visited nodes", visited, exist)
}

// names compares which allocation each pod's name stands for.
func (p *Pair) names() {
	for _, c := range p.Model.allocations {
		p.pod(ledger.PodRef{Namespace: c.pod.Namespace, Name: c.pod.Name})
	}
}

// askRefusals compares the look at all nodes at once, where there can be one: where the
// answer is about capacity alone, and few nodes refuse.
func (p *Pair) askRefusals(at *ledger.Placement) {
	var nodes []string
	for name := range p.Model.FitAll(at) {
		nodes = append(nodes, name)
	}
	got, count, ok := p.Ledger.Refusals(at, len(nodes))
	_, gone := p.Model.gone[at.Pod.UID]
	gone = gone && at.Pod.UID != ""
	p.differ("can look at all nodes", ok, !gone && p.Model.find(at.Pod) == nil && len(p.Model.candidates(at)) == 0)
	if !ok {
		return
	}
	p.differ("nodes that exist", count, len(nodes))
	want := map[string]ledger.Reason{}
	for k, v := range p.Model.AppendFit(nil, at, nodes) {
		if v.Reason != ledger.Fits {
			want[nodes[k]] = v.Reason
		}
	}
	if got == nil {
		got = map[string]ledger.Reason{}
	}
	p.differ("refusals", got, want)
	if len(want) > 0 {
		_, _, ok = p.Ledger.Refusals(at, len(want)-1)
		p.differ("few enough refuse", ok, false)
	}
}
