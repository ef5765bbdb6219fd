package devices

import "slices"

// Choose gives devices to requests: for each request the numbers of its devices, in order. free are the devices that
// may be given. preferred are those of them that are kept for the pod and had best be given; it may be nil. The package
// comment says which devices are best. Where there is no choice, the verdict says why.
func (p *Pool) Choose(free, preferred Set, requests []*Request) ([][]int, Verdict) {
	if v := p.Fits(free, requests); v.Reason != Fits {
		return nil, v
	}
	left := slices.Clone(free)
	if preferred != nil {
		for w := range left {
			left[w] &= preferred[w]
		}
		if p.Fits(left, requests).Reason != Fits {
			left = slices.Clone(free)
		}
	}
	choice, rest := make([][]int, len(requests)), make([]*Request, len(requests))
	give := func(r, device int) {
		left.Remove(device)
		choice[r] = append(choice[r], device)
		rest[r].count--
	}
	for r, request := range requests {
		open := *request
		rest[r], open.names = &open, nil
		for _, name := range request.names {
			give(r, p.index[name])
		}
	}
	for r, request := range requests {
		for _, device := range p.match(request).ordered(preferred) {
			if rest[r].count == 0 {
				break
			}
			if !left.Has(device) {
				continue
			}
			give(r, device)
			if r < len(rest)-1 && p.Fits(left, rest[r:]).Reason != Fits { // others need it
				left.Add(device)
				choice[r] = choice[r][:len(choice[r])-1]
				rest[r].count++
			}
		}
		slices.Sort(choice[r])
	}
	return choice, Verdict{}
}

// ordered returns the devices that match, the best first: those that are preferred before the others.
func (m *match) ordered(preferred Set) []int {
	if preferred == nil {
		return m.order
	}
	order := slices.Clone(m.order)
	slices.SortStableFunc(order, func(a, b int) int {
		return int(preferred.bit(b)) - int(preferred.bit(a))
	})
	return order
}
