package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// limiter says how much the budgets leave for a decision. The zero value limits nothing.
type limiter struct {
	limits  [numBudgets]*Limits // nil: none
	budgets [numBudgets]*budget
	// whole is the verdict on all that is asked for. Where all may be granted, any part of it may be.
	whole Verdict
}

// limiterOf returns what limits a placement for a caller.
func (l *account) limiterOf(p *Placement, caller string) (m limiter) {
	names := [numBudgets]string{OfNamespace: p.namespace(), OfCaller: caller}
	for kind := range l.budgets {
		if all := &l.budgets[kind]; len(all.limits) > 0 {
			m.limits[kind], m.budgets[kind] = all.limitsOf(names[kind]), all.of(names[kind])
		}
	}
	m.whole = m.use(p.Request, nil, nil)
	return m
}

// namespace is the one that a placement is for.
func (p *Placement) namespace() string { return cmp.Or(p.slotNamespace, p.Pod.Namespace) }

// use says whether a request may be granted: by use of slot h, or, where h is nil, without a slot. place is what
// the pod has already, off the account: that much was granted before.
func (m *limiter) use(req *resources.Request, h, place *entry) Verdict {
	for kind, limits := range m.limits {
		if limits == nil {
			continue
		}
		b := m.budgets[kind]
		if col, over := b.exceeds(limits.Use, b.used, BudgetKind(kind), req, h, place); over {
			return Verdict{Reason: useLimits[kind], Column: col}
		}
	}
	return Verdict{Reason: Fits}
}

// within is use for a part of the whole, which is looked at only where the whole is refused.
func (m *limiter) within(req *resources.Request, h *entry) Verdict {
	if m.whole.Reason == Fits {
		return m.whole
	}
	return m.use(req, h, nil)
}

// keep says whether the namespace may keep a slot of what use grants.
func (m *limiter) keep(req *resources.Request, h, place *entry) Verdict {
	limits, b := m.limits[OfNamespace], m.budgets[OfNamespace]
	if limits == nil {
		return Verdict{Reason: Fits}
	}
	if col, over := b.exceeds(limits.Keep, b.kept, OfNamespace, req, h, place); over {
		return Verdict{Reason: ReservedLimit, Column: col}
	}
	if place == nil && limits.Slots != nil && b.slots >= *limits.Slots {
		return Verdict{Reason: SlotLimit}
	}
	return Verdict{Reason: Fits}
}

// exceeds returns the first resource of which a request would add more to what is used than the limits leave.
func (b *budget) exceeds(
	limits []resources.Amount, used []total, kind BudgetKind, req *resources.Request, h, place *entry,
) (col resources.Column, over bool) {
	for _, limit := range limits {
		asked := req.Value(limit.Column)
		more := asked
		if h != nil && h.budgets[kind] == b {
			more -= min(asked, h.counts.Value(limit.Column))
		}
		granted := place != nil && asked <= place.request.Value(limit.Column)
		if more > 0 && !granted && more > limit.Value-totalAt(used, limit.Column) {
			return limit.Column, true
		}
	}
	return 0, false
}

// Limited reports whether there are any limits.
func (l Reader) Limited() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.limited()
}

func (l *account) limited() bool {
	return len(l.budgets[OfNamespace].limits)+len(l.budgets[OfCaller].limits) > 0
}

// OverLimit returns why a pod that has nothing yet could be bound nowhere but with a slot, whatever is free: it
// would be more than its namespace, or its caller, may use. It is nil where that is not so. p.Node is not looked at.
func (l Reader) OverLimit(p *Placement) *Rejection {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if m := l.limiterOf(p, p.Caller); m.whole.Reason != Fits && l.find(p.Pod) == nil {
		return l.reject(p, m.whole, nil)
	}
	return nil
}

// KeptOverLimit returns why the slots of a reservation could be kept on no nodes, whatever is free: for the first slot
// that is more than their namespace, or their caller, may have beside those before it. It is nil where there is none.
// Slots whose pods have something already are not counted, and nodes are not looked at. It is nil where a pod is gone,
// which is a reason to give the reservation up.
func (l Reader) KeptOverLimit(slots []Slot) *Rejection {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.limited() || slices.ContainsFunc(slots, func(s Slot) bool { return s.Pod.UID != "" && l.gone.has(s.Pod.UID) }) {
		return nil
	}
	before, count := &resources.Request{}, int64(0)
	for i := range slots {
		s := &slots[i]
		if s.Pod.Name != "" && l.find(s.Pod) != nil {
			continue
		}
		p := s.Placement()
		together := p
		together.Request = before.Plus(s.Request)
		m := l.limiterOf(&together, p.Caller)
		v := m.whole
		if v.Reason == Fits {
			v = m.keep(together.Request, nil, nil)
		}
		if limits := m.limits[OfNamespace]; v.Reason == Fits && limits != nil && limits.Slots != nil &&
			m.budgets[OfNamespace].slots+count >= *limits.Slots {
			v = Verdict{Reason: SlotLimit}
		}
		if v.Reason != Fits {
			r := l.rejectSlot(s, &p, v, nil)
			if v.Reason == SlotLimit {
				r.Free -= count
			} else {
				r.Free -= before.Value(v.Column)
			}
			return r
		}
		before, count = together.Request, count+1
	}
	return nil
}

// explainLimit records in a rejection how far a budget is used up.
func (l *account) explainLimit(r *Rejection, p *Placement, v Verdict, caller string) {
	m := l.limiterOf(p, caller)
	kind := OfNamespace
	if r.LimitOf = p.namespace(); v.Reason == CallerLimit {
		r.LimitOf, kind = caller, OfCaller
	}
	b, of := m.budgets[kind], m.limits[kind]
	limits, used := of.Use, b.used
	switch v.Reason {
	case SlotLimit:
		r.Resource, r.Requested, r.Limit, r.Free = "slots", 1, *of.Slots, *of.Slots-b.slots
		return
	case ReservedLimit:
		limits, used = of.Keep, b.kept
	}
	r.Resource, r.Requested = string(l.table.Name(v.Column)), p.Request.Value(v.Column)
	for _, limit := range limits {
		if limit.Column == v.Column {
			r.Limit, r.Free = limit.Value, limit.Value-totalAt(used, v.Column)
		}
	}
}

// BudgetView is a budget with limits as readers see it.
type BudgetView struct {
	Name   string
	Limits *Limits // must not be changed
	// Used is what the pods and slots of the name use together of what is limited, and Kept what its slots
	// keep of it beyond what their pods ask for; by column, in the order of the limits.
	Used, Kept []resources.Amount
	Slots      int64
}

// Budgets returns the budgets of a kind, ordered by name: those of names with limits of their own, and, of the names
// under the limits for the rest, those that have anything.
func (l Reader) Budgets(kind BudgetKind) (views []BudgetView) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := &l.budgets[kind]
	names := slices.AppendSeq(slices.Collect(maps.Keys(all.limits)), maps.Keys(all.byName))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if limits, b := all.limitsOf(name), all.of(name); limits != nil {
			views = append(views, BudgetView{name, limits, held(b.used, limits.Use), held(b.kept, limits.Keep), b.slots})
		}
	}
	return views
}

// held returns what there is of what is limited.
func held(totals []total, limits []resources.Amount) (amounts []resources.Amount) {
	for _, limit := range limits {
		amounts = append(amounts, resources.Amount{Column: limit.Column, Value: totalAt(totals, limit.Column)})
	}
	return amounts
}
