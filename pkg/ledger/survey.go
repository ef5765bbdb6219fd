package ledger

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Survey is a copy of what is free on every node. Nodes can be chosen on it for many pods, one next to the other,
// without a lock. It guides the choice only: the ledger decides on what was chosen. It knows nothing of pods that have
// something already, nor of slots that a pod may use, nor of budgets. It is for one goroutine.
type Survey struct {
	Revision uint64 // that it is of
	account  *account
	order    []int32 // the nodes that exist, by name
	// wanted are, by node, the devices that what was taken asks for. They are not given
	// out one after another: all of a node's requests have to be met together.
	wanted [][]*devices.Request
	taken  []takenRow
}

// takenRow is what Take changed.
type takenRow struct {
	node    int32
	placed  *Placement
	free    []int64 // before
	devices int     // how many were wanted before
}

// Survey copies what is free now, as if some pods were gone.
func (l Reader) Survey(without ...types.UID) (s *Survey) {
	if len(without) == 0 {
		l.mu.RLock()
		defer l.mu.RUnlock()
		return l.survey()
	}
	l.Try(func(t *Trial) {
		t.Remove(without...)
		s = t.survey()
	})
	return s
}

func (l *account) survey() *Survey {
	c := &account{
		table: l.table, stride: l.stride, names: slices.Clone(l.names), flags: slices.Clone(l.flags),
		free:      slices.Clone(l.free),
		nodeIndex: make(map[string]int32, len(l.nodeIndex)), nodes: make([]*node, len(l.nodes)),
		deviceOwners: make(map[nameKey][]deviceOwner, len(l.deviceOwners)),
	}
	s := &Survey{Revision: l.revision, account: c, wanted: make([][]*devices.Request, len(l.nodes))}
	copies := make([]node, len(l.nodes))
	for i, n := range l.nodes {
		if n == nil || l.flags[i]&nodeKnown == 0 {
			continue
		}
		c.nodeIndex[l.names[i]], c.nodes[i] = int32(i), &copies[i]
		copies[i].allocatable, copies[i].left, copies[i].labels = n.allocatable, n.left, n.labels
		copies[i].nominated = slices.DeleteFunc(slices.Clone(n.nominated),
			func(n *nomination) bool { return l.isServed(n, nil) })
		for _, uses := range n.ports {
			for _, u := range uses {
				copies[i].occupy(u.HostPort, nil)
			}
		}
		if n.devices != nil {
			copies[i].devices = &nodeDevices{
				pool: n.devices.pool, free: slices.Clone(n.devices.free), counted: slices.Clone(n.devices.counted),
			}
		}
		s.order = append(s.order, int32(i))
	}
	for key, owners := range l.deviceOwners {
		owners = slices.Clone(owners)
		for k := range owners {
			by := *owners[k].by
			owners[k].by = &by
		}
		c.deviceOwners[key] = owners
	}
	slices.SortFunc(s.order, func(a, b int32) int { return cmp.Compare(c.names[a], c.names[b]) })
	return s
}

// BestFit returns the node with capacity for a pod on which least is left over: the sum of the shares, of what the node
// offers of each resource that the pod asks for, that stay free. Of several it is the first by name. Nodes that are not
// allowed are left out. It returns an empty name where there is no capacity anywhere. p.Node is not looked at.
func (s *Survey) BestFit(p *Placement, allowed func(node string) bool) (best string) {
	least := math.Inf(1)
	for _, i := range s.order {
		over := s.leftOver(i, p.Request)
		if over < least && s.fit(i, p).Reason == Fits && allowed(s.account.names[i]) {
			best, least = s.account.names[i], over
		}
	}
	return best
}

func (s *Survey) leftOver(i int32, request *resources.Request) (sum float64) {
	free, offered := s.account.row(i), s.account.nodes[i].allocatable
	for _, a := range request.Amounts {
		if of := at(offered, a.Column); of > 0 && a.Column != resources.Pods {
			sum += float64(resources.Sub(at(free, a.Column), a.Value)) / float64(of)
		}
	}
	return sum
}

// Lack is what is asked for of one resource, and the most there is of it: what one node has free, or, without a node,
// what a namespace or a caller may still have. It is 0 where no node has any.
type Lack struct {
	Resource           string
	Requested, Largest int64
	Node               string
}

// Largest returns, of every resource that a pod asks for, the most that one of the nodes allowed has free. Cordoned
// nodes are left out, unless the pod tolerates them, and so is what one of the nodes leaves to DRA, unless it is to be
// kept: it is not known how much there is. p.Node is not looked at.
func (s *Survey) Largest(p *Placement, allowed func(node string) bool) []Lack {
	var list []Lack
	left := map[string]bool{}
	for _, a := range p.Request.Amounts {
		list = append(list, Lack{Resource: string(s.account.table.Name(a.Column)), Requested: a.Value})
	}
	for _, i := range s.order {
		cordoned := s.account.flags[i]&nodeCordoned != 0 && !p.Request.ToleratesUnschedulable
		if cordoned || !allowed(s.account.names[i]) {
			continue
		}
		for k, a := range p.Request.Amounts {
			if s.account.leftToDRA(i, a.Column) {
				left[list[k].Resource] = !p.NoDRA
				continue
			}
			if free := at(s.account.row(i), a.Column); list[k].Node == "" || free > list[k].Largest {
				list[k].Largest, list[k].Node = free, s.account.names[i]
			}
		}
	}
	list = slices.DeleteFunc(list, func(most Lack) bool { return left[most.Resource] })
	for _, u := range p.Request.Unlisted {
		list = append(list, Lack{Resource: string(u.Name), Requested: u.Value})
	}
	return list
}

// FitAll calls visit for every node that exists, by name, with whether a pod fits there next to what was taken.
func (s *Survey) FitAll(p *Placement, visit func(node string, v Verdict)) {
	for _, i := range s.order {
		visit(s.account.names[i], s.fit(i, p))
	}
}

// LeftToDRA reports whether a node leaves a resource to DRA, so that nothing of it can be kept there.
func (s *Survey) LeftToDRA(node string, column resources.Column) bool {
	i, ok := s.account.nodeIndex[node]
	return ok && s.account.leftToDRA(i, column)
}

// Free returns how much of a resource is free on a node, next to what was taken.
func (s *Survey) Free(node string, column resources.Column) int64 {
	if i, ok := s.account.nodeIndex[node]; ok {
		return at(s.account.row(i), column)
	}
	return 0
}

func (s *Survey) fit(i int32, p *Placement) Verdict { return s.account.fitBeside(i, p, s.wanted[i]) }

// fitBeside is fit for a pod that devices are to be left for beside those that it asks for.
func (l *account) fitBeside(i int32, p *Placement, wanted []*devices.Request) Verdict {
	v := l.fit(i, p, nil, nil)
	if v.Reason != Fits || len(wanted) == 0 || p.Devices == nil {
		return v
	}
	together, all := *p, *p.Devices
	all.Requests = slices.Concat(wanted, all.Requests)
	together.Devices = &all
	return l.fitsDevices(i, &together, nil, nil)
}

// Closest returns the node on which a pod lacks least: the fewest resources, then the
// smallest share of what it asks for. Nodes without free devices for it come after those
// with, cordoned ones last. It returns an empty name where there are no nodes at all.
func (s *Survey) Closest(p *Placement) (best string) {
	least := math.Inf(1)
	for _, i := range s.order {
		if lack := s.account.lack(i, p, s.wanted[i]); lack < least {
			best, least = s.account.names[i], lack
		}
	}
	return best
}

// lack returns how far a node is from having capacity for a pod, and devices beside those that are wanted already.
func (l *account) lack(i int32, p *Placement, wanted []*devices.Request) (sum float64) {
	free := l.row(i)
	for _, a := range p.Request.Amounts {
		if lack := resources.Sub(a.Value, at(free, a.Column)); lack > 0 {
			sum += 1 + float64(lack)/float64(a.Value)
		}
	}
	if l.flags[i]&nodeCordoned != 0 && !p.Request.ToleratesUnschedulable {
		sum += 1e6
	}
	if p.Devices == nil {
		return sum
	}
	devicesOnly := Placement{Pod: p.Pod, Request: &resources.Request{ToleratesUnschedulable: true}, Devices: p.Devices}
	if l.fitBeside(i, &devicesOnly, wanted).Reason != Fits {
		sum += l.nodes[i].lackOfDevices(p.Devices.Requests)
	}
	return sum
}

// Nearest returns why a pod is refused on the one of some nodes where it lacks least; nil where there is capacity for
// it, or none of the nodes is known. p.Node is not looked at.
func (l Reader) Nearest(p *Placement, nodes []string) *Rejection {
	l.mu.RLock()
	defer l.mu.RUnlock()
	best, least := int32(-1), math.Inf(1)
	for _, name := range nodes {
		i, ok := l.nodeIndex[name]
		if !ok || l.flags[i]&nodeKnown == 0 {
			continue
		}
		if lack := l.lack(i, p, nil); lack < least || lack == least && name < l.names[best] {
			best, least = i, lack
		}
	}
	if best < 0 {
		return nil
	}
	v := l.fit(best, p, nil, nil)
	if v.Reason == Fits {
		return nil
	}
	there := *p
	there.Node = l.names[best]
	return l.reject(&there, v, nil)
}

// FitsEmpty reports whether some node would have capacity for what a pod asks for if it were empty. Cordons do not
// count, nor do the devices of claims.
func (l Reader) FitsEmpty(p *Placement) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(p.Request.Unlisted) > 0 {
		return false
	}
	return slices.ContainsFunc(l.nodes, func(n *node) bool {
		more := func(a resources.Amount) bool {
			return a.Value > n.offered(a.Column) || p.NoDRA && slices.Contains(n.left, a.Column)
		}
		return n != nil && !slices.ContainsFunc(p.Request.Amounts, more)
	})
}

// lackOfDevices returns how far a node without free devices for a pod is from having them:
// nearest where somebody else has them, farthest where none are of the resource.
func (n *node) lackOfDevices(requests []*devices.Request) float64 {
	of := map[string]bool{}
	if n.devices != nil {
		pool := n.devices.pool
		if pool.Fits(pool.Schedulable(), requests).Reason == devices.Fits {
			return 1e3
		}
		for k := range pool.Len() {
			of[pool.Device(k).Resource] = true
		}
	}
	lack := 2e3
	for _, r := range requests {
		if !of[r.Resource()] {
			lack += 1e3
		}
	}
	return lack
}

// Take subtracts what a pod, or a slot, asks for on its node, whether it fits or not. A
// node that does not exist is left out.
func (s *Survey) Take(p *Placement) {
	i, ok := s.account.nodeIndex[p.Node]
	if !ok {
		return
	}
	free := s.account.row(i)
	s.taken = append(s.taken, takenRow{i, p, slices.Clone(free), len(s.wanted[i])})
	for _, a := range p.Request.Amounts {
		if int(a.Column) < len(free) {
			free[a.Column] = resources.Sub(free[a.Column], a.Value)
		}
	}
	for _, port := range p.Request.Ports {
		s.account.nodes[i].occupy(port, nil)
	}
	if p.Devices != nil {
		s.wanted[i] = append(s.wanted[i], p.Devices.Requests...)
	}
}

// Taken returns how often something was taken, for Undo.
func (s *Survey) Taken() int { return len(s.taken) }

// Undo gives back what was taken last, until only the first few are left.
func (s *Survey) Undo(left int) {
	for _, t := range slices.Backward(s.taken[left:]) {
		copy(s.account.row(t.node), t.free)
		s.wanted[t.node] = s.wanted[t.node][:t.devices]
		n := s.account.nodes[t.node]
		for _, port := range t.placed.Request.Ports {
			n.ports[port.PortKey] = n.ports[port.PortKey][:len(n.ports[port.PortKey])-1]
		}
	}
	s.taken = s.taken[:left]
}
