package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	nodeKnown    uint8 = 1 << iota // the API server has such a node
	nodeCordoned                   // its spec.unschedulable is set
)

// node is the account of one node. A node that was deleted, or not seen yet,
// stays as long as claims or holds are on it: when it comes back they still count.
type node struct {
	name        string
	claims      *claim // head of the list
	claimCount  int
	saturated   bool // a sum had no int64: use must be recounted on release
	ports       map[resources.PortKey][]portUse
	uid         types.UID
	allocatable []int64 // by column; shorter than the table where the rest is 0
	holds       []*hold
	devices     *nodeDevices
}

// portUse is a claim's, or a hold's, use of a host port.
type portUse struct {
	ip    string
	claim *claim
	hold  *hold
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

// usedRow returns the amounts that the claims on a node use.
func (l *account) usedRow(i int32) []int64 {
	return l.used[int(i)*l.stride : (int(i)+1)*l.stride]
}

// ensureNode returns the index of a node and makes an account for it, not known
// to exist yet, where there is none.
func (l *account) ensureNode(name string) int32 {
	if i, ok := l.nodeIndex[name]; ok {
		return i
	}
	var i int32
	if n := len(l.freeIndex); n > 0 {
		i = l.freeIndex[n-1]
		l.freeIndex = l.freeIndex[:n-1]
	} else {
		i = int32(len(l.nodes))
		l.nodes = append(l.nodes, nil)
		l.flags = append(l.flags, 0)
		l.free = append(l.free, make([]int64, l.stride)...)
		l.used = append(l.used, make([]int64, l.stride)...)
	}
	l.nodes[i] = &node{name: name}
	l.nodeIndex[name] = i
	return i
}

// dropIfEmpty forgets a node that does not exist and has no claims, holds or devices left.
func (l *account) dropIfEmpty(i int32) {
	n := l.nodes[i]
	if n == nil || l.flags[i]&nodeKnown != 0 || n.claimCount > 0 || len(n.holds) > 0 || n.devices != nil {
		return
	}
	delete(l.nodeIndex, n.name)
	l.nodes[i] = nil
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
	free, used, allocatable := l.row(i), l.usedRow(i), l.nodes[i].allocatable
	for c := range free {
		free[c] = resources.Sub(at(allocatable, resources.Column(c)), used[c])
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
}

// unuse takes a request off a node of which nothing else tells any more: a node
// whose sums saturated is recounted from what is left.
func (l *account) unuse(i int32, req *resources.Request) {
	if l.nodes[i].saturated {
		l.recount(i)
		return
	}
	l.use(i, req, -1)
}

// occupy records who uses the host ports of a request.
func (l *account) occupy(i int32, req *resources.Request, by portUse) {
	for _, p := range req.Ports {
		l.nodes[i].occupy(p, by)
	}
}

func (n *node) occupy(p resources.HostPort, by portUse) {
	if n.ports == nil {
		n.ports = map[resources.PortKey][]portUse{}
	}
	by.ip = p.IP
	n.ports[p.PortKey] = append(n.ports[p.PortKey], by)
}

// vacate frees the host ports of a request that are used by those for which is
// is true.
func (l *account) vacate(i int32, req *resources.Request, is func(portUse) bool) {
	n := l.nodes[i]
	for _, p := range req.Ports {
		uses := slices.DeleteFunc(n.ports[p.PortKey], is)
		if len(uses) == 0 {
			delete(n.ports, p.PortKey)
		} else {
			n.ports[p.PortKey] = uses
		}
	}
}

// place puts a claim on a node's account. A claim that uses a hold joins it.
func (l *account) place(c *claim, i int32) {
	c.node = i
	n := l.nodes[i]
	l.use(i, c.request, 1)
	if len(c.request.Ports) > 0 {
		l.occupy(i, c.request, portUse{claim: c})
	}
	c.prev, c.next = nil, n.claims
	if n.claims != nil {
		n.claims.prev = c
	}
	n.claims = c
	n.claimCount++
	if c.hold != nil {
		l.join(c, c.hold)
	}
	if c.devices != nil {
		l.own(i, c.devices.given, deviceOwner{claim: c})
	}
}

// retract takes a claim off its node's account. It leaves its hold, if it uses
// one, but still tells which that was.
func (l *account) retract(c *claim) {
	n := l.nodes[c.node]
	if c.hold != nil {
		l.leave(c)
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		n.claims = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	n.claimCount--
	if len(c.request.Ports) > 0 {
		l.vacate(c.node, c.request, func(u portUse) bool { return u.claim == c })
	}
	l.unuse(c.node, c.request)
	if c.devices != nil {
		l.disown(c.node, c.devices.given, deviceOwner{claim: c})
	}
}

// recount sums a node's use anew: a sum that saturated cannot be taken back.
func (l *account) recount(i int32) {
	n := l.nodes[i]
	n.saturated = false
	clear(l.usedRow(i))
	l.refresh(i)
	for c := n.claims; c != nil; c = c.next {
		l.use(i, c.request, 1)
	}
	for _, h := range n.holds {
		l.use(i, h.rest, 1)
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
