package ledgermodel

import (
	"maps"
	"math/big"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// owners are whose budgets something counts in, by kind.
type owners [2]string

func ownersOf(p *ledger.Placement) owners { return owners{p.Pod.Namespace, p.Caller} }

func slotOwners(spec *ledger.Slot) owners { return owners{spec.Ref.Namespace, spec.Caller} }

// SetLimits sets the limits of some names.
func (m *Model) SetLimits(kind ledger.BudgetKind, changes map[string]*ledger.Limits) {
	limits := maps.Clone(m.limits[kind])
	for name, l := range changes {
		if limits[name] = l; l == nil {
			delete(limits, name)
		}
	}
	m.limits = maps.Clone(m.limits)
	m.limits[kind] = limits
}

// limitsOf returns the limits for a name, or nil.
func (m *Model) limitsOf(kind ledger.BudgetKind, name string) *ledger.Limits {
	if name == "" {
		return nil // nobody knows whose it is
	}
	if own := m.limits[kind][name]; own != nil {
		return own
	}
	return m.limits[kind][""]
}

// counted adds up what belongs to somebody: what the pods ask for and the slots keep beyond that, and the latter alone.
func (m *Model) counted(kind ledger.BudgetKind, name string, resource v1.ResourceName) (used, kept *big.Int) {
	used, kept = new(big.Int), new(big.Int)
	for _, c := range m.allocations {
		if who := (owners{c.pod.Namespace, c.caller}); who[kind] == name {
			used.Add(used, big.NewInt(m.asks(c.request)[resource]))
			if c.inMemory() {
				kept.Add(kept, big.NewInt(m.asks(c.request)[resource]))
			}
		}
	}
	for _, h := range m.slots {
		if slotOwners(&h.Slot)[kind] == name {
			asked := m.asked(h, resource)
			rest := new(big.Int).Sub(larger(m.kept(h, resource), asked), asked)
			used.Add(used, rest)
			kept.Add(kept, rest)
		}
	}
	return used, kept
}

// owns counts the slots that belong to somebody.
func (m *Model) owns(kind ledger.BudgetKind, name string) (slots int64) {
	for _, c := range m.allocations {
		if who := (owners{c.pod.Namespace, c.caller}); who[kind] == name && c.inMemory() {
			slots++
		}
	}
	for _, h := range m.slots {
		if slotOwners(&h.Slot)[kind] == name {
			slots++
		}
	}
	return slots
}

// over says whether somebody may be granted a request, by use of a slot or without. place is what the pod had,
// which is not in the model any more.
func (m *Model) over(who owners, r *resources.Request, by *modelSlot, place *modelAllocation) ledger.Verdict {
	reasons := []ledger.Reason{ledger.QuotaExceeded, ledger.CallerLimit}
	for kind, name := range who {
		limits := m.limitsOf(ledger.BudgetKind(kind), name)
		if limits == nil {
			continue
		}
		next := modelAllocation{pod: ledger.PodRef{Namespace: who[0]}, caller: who[1], request: r, state: ledger.Binding}
		pick := func(used, _ *big.Int) *big.Int { return used }
		if a := m.exceeded(ledger.BudgetKind(kind), name, limits.Use, &next, by, place, pick); a != nil {
			return ledger.Verdict{Reason: reasons[kind], Column: a.Column}
		}
	}
	return ledger.Verdict{}
}

// overKeep says whether somebody's namespace may keep a slot.
func (m *Model) overKeep(who owners, r *resources.Request, by *modelSlot, place *modelAllocation) ledger.Verdict {
	limits := m.limitsOf(ledger.OfNamespace, who[0])
	if limits == nil {
		return ledger.Verdict{}
	}
	next := modelAllocation{pod: ledger.PodRef{Namespace: who[0]}, request: r}
	pick := func(_, kept *big.Int) *big.Int { return kept }
	if a := m.exceeded(ledger.OfNamespace, who[0], limits.Keep, &next, by, place, pick); a != nil {
		return ledger.Verdict{Reason: ledger.ReservedLimit, Column: a.Column}
	}
	if slots := m.owns(ledger.OfNamespace, who[0]); place == nil && limits.Slots != nil && slots+1 > *limits.Slots {
		return ledger.Verdict{Reason: ledger.SlotLimit}
	}
	return ledger.Verdict{}
}

// exceeded returns the first limit that something new would break.
func (m *Model) exceeded(
	kind ledger.BudgetKind, name string, limits []resources.Amount, next *modelAllocation, by *modelSlot,
	place *modelAllocation,
	pick func(used, kept *big.Int) *big.Int,
) *resources.Amount {
	if by != nil {
		next.uses = by.Ref
	}
	with := m.only(anyAllocation, anySlot)
	with.allocations = append(with.allocations, next)
	for k, limit := range limits {
		resource := m.table.Name(limit.Column)
		before, after := pick(m.counted(kind, name, resource)), pick(with.counted(kind, name, resource))
		granted := place != nil && m.asks(next.request)[resource] <= m.asks(place.request)[resource]
		if after.Cmp(before) > 0 && !granted && after.Cmp(big.NewInt(limit.Value)) > 0 {
			return &limits[k]
		}
	}
	return nil
}

// refuseLimit explains a refusal by a limit.
func (m *Model) refuseLimit(r *ledger.Rejection, who owners, request *resources.Request, v ledger.Verdict) {
	kind := ledger.OfNamespace
	if v.Reason == ledger.CallerLimit {
		kind = ledger.OfCaller
	}
	r.LimitOf = who[kind]
	limits := m.limitsOf(kind, who[kind])
	if v.Reason == ledger.SlotLimit {
		slots := m.owns(kind, who[kind])
		r.Resource, r.Requested, r.Limit, r.Free = "slots", 1, *limits.Slots, *limits.Slots-slots
		return
	}
	resource := m.table.Name(v.Column)
	used, kept := m.counted(kind, who[kind], resource)
	list := limits.Use
	if v.Reason == ledger.ReservedLimit {
		used, list = kept, limits.Keep
	}
	at := slices.IndexFunc(list, func(a resources.Amount) bool { return a.Column == v.Column })
	r.Resource, r.Requested, r.Limit = string(resource), m.asks(request)[resource], list[at].Value
	r.Free = r.Limit - count(used)
}

// refuseSlot explains the refusal of a slot of a reservation.
func (m *Model) refuseSlot(spec *ledger.Slot, v ledger.Verdict) *ledger.Rejection {
	p := asPlacement(spec)
	if !v.Reason.OfLimit() {
		return m.refuse(p, v, nil)
	}
	r := &ledger.Rejection{Pod: p.Pod, Node: p.Node, Reason: v.Reason}
	m.refuseLimit(r, slotOwners(spec), p.Request, v)
	return r
}

// Budgets returns the budgets of a kind as readers of the ledger see them.
func (m *Model) Budgets(kind ledger.BudgetKind) []ledger.BudgetView {
	names := slices.Collect(maps.Keys(m.limits[kind]))
	for _, c := range m.allocations {
		names = append(names, owners{c.pod.Namespace, c.caller}[kind])
	}
	for _, h := range m.slots {
		names = append(names, slotOwners(&h.Slot)[kind])
	}
	slices.Sort(names)
	views := []ledger.BudgetView{}
	for _, name := range slices.Compact(names) {
		limits := m.limitsOf(kind, name)
		if name == "" || limits == nil {
			continue
		}
		view := ledger.BudgetView{Name: name, Limits: limits}
		view.Slots = m.owns(kind, name)
		for _, limit := range limits.Use {
			used, _ := m.counted(kind, name, m.table.Name(limit.Column))
			view.Used = append(view.Used, resources.Amount{Column: limit.Column, Value: count(used)})
		}
		for _, limit := range limits.Keep {
			_, kept := m.counted(kind, name, m.table.Name(limit.Column))
			view.Kept = append(view.Kept, resources.Amount{Column: limit.Column, Value: count(kept)})
		}
		views = append(views, view)
	}
	return views
}
