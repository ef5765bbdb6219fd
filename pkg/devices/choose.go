package devices

import "slices"

// Choose gives devices to requests: for each request the numbers of its devices, in order. free are the devices that
// may be given. preferred are those of them that are kept for the pod and had best be given; it may be nil. The package
// comment says which devices are best. Where there is no choice, the verdict says why.
func (p *Pool) Choose(free, preferred Set, requests []*Request) ([][]int, Verdict) {
	if preferred != nil {
		inside := slices.Clone(free)
		for w := range inside {
			inside[w] &= preferred[w]
		}
		if p.Fits(inside, requests).Reason == Fits {
			free = inside
		}
	}
	var t task
	v := t.prepare(p, free, requests)
	if v.Reason == Fits {
		v = t.assign(requests)
	}
	if v.Reason != Fits {
		return nil, v
	}
	choice := make([][]int, len(requests))
	for r, request := range requests {
		for _, name := range request.names {
			choice[r] = append(choice[r], p.index[name])
		}
		for _, device := range p.match(request).ordered(preferred) {
			if len(choice[r]) < request.count && t.usableBy(r).Has(device) && t.settle(r, device) {
				choice[r] = append(choice[r], device)
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
	inside := func(device int) bool { return preferred.Has(device) }
	outside := func(device int) bool { return !preferred.Has(device) }
	return append(slices.DeleteFunc(slices.Clone(m.order), outside), slices.DeleteFunc(slices.Clone(m.order), inside)...)
}

// settle gives a request, for good, a device in the place of one that it was given by assign, and reports whether that
// leaves enough for all requests. What is settled is used, and nobody has it.
func (t *task) settle(r, device int) bool {
	owner := -1
	for o := range t.requests {
		if t.takenBy(o).Has(device) {
			owner = o
		}
	}
	if owner < 0 && t.used().Has(device) { // it is settled
		return false
	}
	own, _ := firstCommon(t.takenBy(r), t.takenBy(r), 0)
	if owner == r {
		own = device
	}
	t.takenBy(r).Remove(own)
	t.used().Remove(own)
	t.used().Add(device)
	if owner >= 0 && owner != r {
		t.takenBy(owner).Remove(device)
		if !t.augment(owner) {
			t.takenBy(owner).Add(device)
			t.takenBy(r).Add(own)
			t.used().Add(own)
			return false
		}
	}
	return true
}
