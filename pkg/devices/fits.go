package devices

import (
	"fmt"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Reason is the kind of a refusal. Fits is none.
type Reason uint8

// The kinds of refusals.
const (
	Fits        Reason = iota
	NamedAbsent        // a device that the request names is not here, or the request does not select it
	NamedTaken         // a device that the request names is not free
	TooFew             // the node has too few devices that the request selects, free or not
	TooFewFree         // too few of them are free
	Contended          // each request could be served alone, but not all together
	numReasons
)

var reasonNames = [numReasons]string{"Fits", "NamedAbsent", "NamedTaken", "TooFew", "TooFewFree", "Contended"}

// String returns the reason's name.
func (r Reason) String() string { return reasonNames[r] }

// Verdict is the answer to whether requests fit a node.
type Verdict struct {
	Reason Reason
	// Request is the place, in the list that was asked about, of the first request that cannot be
	// served beside those before it.
	Request int
	// Have is how many devices there are for it: that it selects (TooFew), that are free of them
	// (TooFewFree), or that are left beside those before it (Contended).
	Have int
	// Name is the device of NamedAbsent and NamedTaken.
	Name string
}

// Explain says in words why the requests that were checked do not fit.
func (v Verdict) Explain(requests []*Request) string {
	if v.Reason == Fits {
		return "the devices fit"
	}
	wanted := requests[v.Request].String()
	switch v.Reason {
	case NamedAbsent:
		return fmt.Sprintf("%s: the node has no device %s that the claim selects", wanted, v.Name)
	case NamedTaken:
		return fmt.Sprintf("%s: device %s is not free", wanted, v.Name)
	case TooFew:
		return fmt.Sprintf("%s: the node has %d of these", wanted, v.Have)
	case TooFewFree:
		return fmt.Sprintf("%s: %d of these are free on the node", wanted, v.Have)
	default:
		return fmt.Sprintf("%s: %d of these are left on the node beside the pod's other claims", wanted, v.Have)
	}
}

// Fits reports whether the free devices can serve all requests together. It is made to be called for every
// node: where a pool knows the shapes of the requests it allocates nothing, as long as a pod has at most
// 16 claims and the node at most 256 devices.
func (p *Pool) Fits(free Set, requests []*Request) Verdict {
	var t task
	if v := t.prepare(p, free, requests); v.Reason != Fits || len(requests) < 2 {
		return v
	}
	return t.assign(requests)
}

// task is one question: requests to be served by what is free. It is small enough for the stack, and
// keeps its sets in an array for that.
type task struct {
	words    int
	requests int
	sets     [(2*v1alpha1.MaxPodClaims + 2) * 4]uint64
	large    []uint64 // instead of sets, where they are too few
}

// usableBy has the free devices a request selects, less those that a request names: only the request that
// names a device can have it.
func (t *task) usableBy(r int) Set { return t.set(2 + r) }

// takenBy has what a request was given of these.
func (t *task) takenBy(r int) Set { return t.set(2 + t.requests + r) }

// named has the devices that requests name, used all that requests were given beside these.
func (t *task) named() Set { return t.set(0) }
func (t *task) used() Set  { return t.set(1) }

func (t *task) set(k int) Set {
	if t.large != nil {
		return t.large[k*t.words : (k+1)*t.words]
	}
	return t.sets[k*t.words : (k+1)*t.words]
}

// prepare looks at each request by itself.
func (t *task) prepare(p *Pool, free Set, requests []*Request) Verdict {
	t.words, t.requests = p.words(), len(requests)
	if size := t.words * (2*t.requests + 2); size > len(t.sets) {
		t.large = make([]uint64, size)
	}
	for i, r := range requests {
		m := p.match(r)
		if v := t.name(p, m, free, r); v.Reason != Fits {
			v.Request = i
			return v
		}
		usable := t.usableBy(i)
		for w := range usable {
			usable[w] = m.set[w] & free[w]
		}
		if have := usable.Len(); have < r.count {
			if all := m.set.Len(); all < r.count {
				return Verdict{Reason: TooFew, Request: i, Have: all}
			}
			return Verdict{Reason: TooFewFree, Request: i, Have: have}
		}
	}
	for i := range requests {
		usable := t.usableBy(i)
		for w := range usable {
			usable[w] &^= t.named()[w]
		}
	}
	return Verdict{}
}

// name gives a request the devices it names.
func (t *task) name(p *Pool, m *match, free Set, r *Request) Verdict {
	for _, name := range r.names {
		d, ok := p.index[name]
		switch {
		case !ok || !m.set.Has(d):
			return Verdict{Reason: NamedAbsent, Name: name}
		case !free.Has(d):
			return Verdict{Reason: NamedTaken, Name: name}
		case t.named().Has(d):
			return Verdict{Reason: Contended, Have: m.set.LenCommon(free) - m.set.LenCommon(t.named())}
		}
		t.named().Add(d)
	}
	return Verdict{}
}

// assign gives every request what it needs of what is usable, by augmenting paths. No cost is looked at.
func (t *task) assign(requests []*Request) Verdict {
	for i, r := range requests {
		for k := len(r.names); k < r.count; k++ {
			if !t.augment(i) {
				return Verdict{Reason: Contended, Request: i, Have: k}
			}
		}
	}
	return Verdict{}
}

// augment gives one more device to a request: one that nobody has, or one of another request, which
// then is given another, and so on.
func (t *task) augment(to int) bool {
	var from, via, queue [v1alpha1.MaxPodClaims]int
	fromOf, viaOf, next := from[:0], via[:0], queue[:0]
	for range t.requests {
		fromOf, viaOf = append(fromOf, -1), append(viaOf, -1)
	}
	fromOf[to] = to
	next = append(next, to)
	for at := 0; at < len(next); at++ {
		r := next[at]
		if d, ok := firstCommon(t.usableBy(r), t.used(), ^uint64(0)); ok {
			t.used().Add(d)
			t.pass(d, r, to, fromOf, viaOf)
			return true
		}
		for other := range t.requests {
			if fromOf[other] >= 0 {
				continue
			}
			if d, ok := firstCommon(t.usableBy(r), t.takenBy(other), 0); ok {
				fromOf[other], viaOf[other] = r, d
				next = append(next, other)
			}
		}
	}
	return false
}

// pass gives device d to request r, what r gave up for it to the request before it on the path, and so
// on to the request the path began at.
func (t *task) pass(d, r, to int, from, via []int) {
	for {
		t.takenBy(r).Add(d)
		if r == to {
			return
		}
		d = via[r]
		t.takenBy(r).Remove(d)
		r = from[r]
	}
}
