package devices

import (
	"math"
	"slices"
)

// Choose gives devices to requests: for each request the numbers of its devices, in order. free are the devices that
// may be given. preferred are those of them that are kept for the pod and had best be given; it may be nil. The package
// comment says which choice is best. Where there is none, the verdict says why.
func (p *Pool) Choose(free, preferred Set, requests []*Request) ([][]int, Verdict) {
	if v := p.Fits(free, requests); v.Reason != Fits {
		return nil, v
	}
	c := p.newChooser(free, preferred, requests)
	for r, request := range requests {
		for range request.count - len(request.names) {
			c.lookFor(c.nobody)
			c.exchange(r, c.nobody)
		}
	}
	for r := range requests {
		c.settle(r)
	}
	choice := c.chosen
	for r := range choice {
		slices.Sort(choice[r])
	}
	return choice, Verdict{}
}

// none is the cost of what is impossible; sums of it and of costs do not overflow.
const none = math.MaxInt64 / 4

// settled is the owner of a device that is not to be exchanged any more.
const settled = -1

// chooser looks for the best choice. The parties are the requests, and one more, nobody, which has the free devices.
//
// The parties exchange devices: a takes one of b, b takes one of c instead, and so on. What that costs
// is the length of a path in a graph of the parties, in which the edge from a to b is the cheapest
// device that a can take of b: what it costs a, less what it cost b.
type chooser struct {
	devices int
	parties int
	nobody  int
	owner   []int   // of each device
	costs   []int64 // of each device for each party, or none
	chosen  [][]int // devices that are settled, for each request
	edges   []int64 // from each party to each
	via     []int   // the device of each edge
	stale   bool    // owners have changed since the edges were made
	target  int     // the party that was looked for last
	lengths []int64 // of the cheapest path from each party to that
	next    []int   // the party after each on its path
}

func (p *Pool) newChooser(free, preferred Set, requests []*Request) *chooser {
	d, n := len(p.devices), len(requests)+1
	c := &chooser{
		devices: d, parties: n, nobody: n - 1, owner: make([]int, d), costs: make([]int64, d*n),
		chosen: make([][]int, n-1), edges: make([]int64, n*n), via: make([]int, n*n), stale: true,
		lengths: make([]int64, n), next: make([]int, n),
	}
	for i := range c.owner {
		c.owner[i] = settled
		if free.Has(i) {
			c.owner[i] = c.nobody
		}
	}
	for r, request := range requests {
		m := p.match(request)
		costs := c.costs[r*d : (r+1)*d]
		copy(costs, m.costs)
		for i := range costs {
			if !m.set.Has(i) {
				costs[i] = none
			} else if preferred != nil && !preferred.Has(i) {
				costs[i] += 1 << outsideShift
			}
		}
		c.chosen[r] = make([]int, 0, request.count)
		for _, name := range request.names {
			c.give(p.index[name], r)
		}
	}
	return c
}

func (c *chooser) cost(party, device int) int64 { return c.costs[party*c.devices+device] }

// give settles that a request has a device.
func (c *chooser) give(device, r int) {
	c.owner[device], c.stale = settled, true
	c.chosen[r] = append(c.chosen[r], device)
}

// makeEdges finds the cheapest device each party can take of each other, the first by name of several.
func (c *chooser) makeEdges() {
	for i := range c.edges {
		c.edges[i] = none
	}
	for d, owner := range c.owner {
		if owner == settled {
			continue
		}
		saved := c.cost(owner, d)
		for party := range c.parties {
			cost := c.cost(party, d)
			if party == owner || cost == none {
				continue
			}
			if e := party*c.parties + owner; cost-saved < c.edges[e] {
				c.edges[e], c.via[e] = cost-saved, d
			}
		}
	}
	c.stale = false
}

// lookFor finds the cheapest path from each party to one, by the algorithm of Bellman and Ford: some
// edges save cost, but no way around does, because what was chosen so far is the best there is.
func (c *chooser) lookFor(to int) {
	if !c.stale && c.target == to {
		return
	}
	c.makeEdges()
	c.target = to
	for i := range c.lengths {
		c.lengths[i] = none
	}
	c.lengths[to] = 0
	for changed := true; changed; {
		changed = false
		for a := range c.parties {
			for b := range c.parties {
				edge := c.edges[a*c.parties+b]
				if edge == none || c.lengths[b] == none {
					continue
				}
				if length := edge + c.lengths[b]; length < c.lengths[a] {
					c.lengths[a], c.next[a], changed = length, b, true
				}
			}
		}
	}
}

// exchange passes devices along the path to a party that was looked for.
func (c *chooser) exchange(from, to int) {
	for a := from; a != to; a = c.next[a] {
		c.owner[c.via[a*c.parties+c.next[a]]] = a
	}
	c.stale = true
}

// settle gives a request the devices with the first names that it can have at no cost. It can have a
// device of another party so if that party is compensated by exchanges that end with a device
// which the request has and that is not settled.
func (c *chooser) settle(r int) {
	left := 0
	for _, owner := range c.owner {
		if owner == r {
			left++
		}
	}
	for d := 0; left > 0; d++ {
		owner := c.owner[d]
		if owner == settled || c.cost(r, d) == none {
			continue
		}
		if owner != r {
			c.lookFor(r)
			if c.lengths[owner] == none || c.lengths[owner]+c.cost(r, d)-c.cost(owner, d) != 0 {
				continue
			}
			c.exchange(owner, r)
		}
		c.give(d, r)
		left--
	}
}
