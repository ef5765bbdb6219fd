package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// growth is what an allocation counts for beyond what its pod was seen to ask for: a resize was granted that may
// be written on top of one version of the pod, or never. Any newer version than that shows which.
type growth struct {
	observed, granted *resources.Request
	version           uint64
}

// Resize decides whether a pod that is bound, or being bound, may come to ask for more where it is: in the slot that it
// uses, and in the node's free capacity. Only what it asks for beyond what it counts for is checked. What is granted
// counts until the pod is seen at a version above the one that is resized, or SettleResize is called. Where it asks for
// less, the larger amount counts until the pod is seen with less. found is false where the pod has no allocation.
func (l *Ledger) Resize(
	pod PodRef, asked *resources.Request, version uint64, now time.Time,
) (found bool, rejection *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, more := l.expire(now)
	e := l.allocationOf(pod)
	if e == nil {
		return false, nil
	}
	if more {
		l.expireAround(pod, l.names[e.node], SlotRef{}, now)
	}
	if rejection := l.fitResize(e, asked); rejection != nil {
		return true, rejection
	}
	if version < e.version {
		return true, nil // it cannot be written any more
	}
	if e.growth == nil {
		e.growth = &growth{observed: e.request, granted: asked}
	}
	e.growth = &growth{
		observed: e.growth.observed, granted: larger(e.growth.granted, asked),
		version: max(version, e.growth.version),
	}
	l.count(e, larger(e.growth.observed, e.growth.granted))
	return true, nil
}

// FitResize returns why Resize would refuse, nil where it would not.
func (l Reader) FitResize(pod PodRef, asked *resources.Request) (found bool, rejection *Rejection) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e := l.allocationOf(pod)
	if e == nil {
		return false, nil
	}
	return true, l.fitResize(e, asked)
}

func (l *account) fitResize(e *entry, asked *resources.Request) *Rejection {
	more := beyond(asked, e.request)
	if len(more.Amounts)+len(more.Unlisted) == 0 {
		return nil
	}
	p := &Placement{
		Pod: e.pod, Node: l.names[e.node], Request: more, Scheduler: e.scheduler, Caller: e.caller,
		Priority: e.priority,
	}
	m := l.limiterOf(p, e.caller)
	v := m.use(more, e.within, nil)
	if v.Reason == Fits || l.flags[e.node]&nodeKnown == 0 {
		v = l.fitCapacity(e.node, more, l.rowFor(e.node, p, nil), e.within, e)
	}
	if v.Reason == Fits {
		return nil
	}
	r := l.reject(p, v, nil)
	if v.Reason == InsufficientResource && !v.Unlisted {
		r.restrict(e.within, v.Column)
	}
	return r
}

// SettleResize records that no granted resize of a pod at a version, or an older one, will be written any more.
// It reports whether one was pending.
func (l *Ledger) SettleResize(pod PodRef, version uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.allocationOf(pod)
	if e == nil || e.growth == nil || e.growth.version > version {
		return false
	}
	request := e.growth.observed
	e.growth = nil
	l.count(e, request)
	return true
}

// count makes an allocation count for another request.
func (l *account) count(e *entry, request *resources.Request) {
	if request.Equal(e.request) {
		return
	}
	l.detach(e)
	e.request = request
	l.attach(e)
	l.record(AllocationResized, e, e.pod)
}

// seen returns what an allocation counts for once its pod is seen to ask for request at a version, 0 if unknown.
func (e *entry) seen(request *resources.Request, version uint64) *resources.Request {
	switch {
	case e.growth == nil:
		return request
	case version > e.growth.version:
		e.growth = nil
		return request
	default:
		e.growth = &growth{observed: request, granted: e.growth.granted, version: e.growth.version}
		return larger(request, e.growth.granted)
	}
}

// beyond returns what a request asks for beyond another one.
func beyond(asked, has *resources.Request) *resources.Request {
	more := &resources.Request{Unlisted: asked.Unlisted, ToleratesUnschedulable: true}
	for _, a := range asked.Amounts {
		if left := resources.Sub(a.Value, has.Value(a.Column)); left > 0 {
			more.Amounts = append(more.Amounts, resources.Amount{Column: a.Column, Value: left})
		}
	}
	return more
}

// larger returns a request with the larger amounts of two. All else is the first one's.
func larger(request, other *resources.Request) *resources.Request {
	sum := *request
	sum.Amounts = slices.Clone(request.Amounts)
	for _, a := range other.Amounts {
		at, ok := slices.BinarySearchFunc(sum.Amounts, a.Column, func(x resources.Amount, c resources.Column) int {
			return cmp.Compare(x.Column, c)
		})
		if ok {
			sum.Amounts[at].Value = max(sum.Amounts[at].Value, a.Value)
		} else {
			sum.Amounts = slices.Insert(sum.Amounts, at, a)
		}
	}
	return &sum
}
