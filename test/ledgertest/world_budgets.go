package ledgertest

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

var callers = []string{"", "c1", "c2", ledger.Trusted}

// caller draws who asks.
func (w *World) caller(t *rapid.T) string {
	if !w.Limits {
		return ""
	}
	return oneOf(t, "caller", callers)
}

// limits draws what a budget may hold; rarely there is no limit.
func (w *World) limits(t *rapid.T) *ledger.Limits {
	if Pick(t, "no limit", 6) == 5 {
		return nil
	}
	l := &ledger.Limits{Use: w.amounts(t, "use", 40), Keep: w.amounts(t, "keep", 16)}
	if Pick(t, "limited slots", 3) == 2 {
		l.Slots = new(int64(Pick(t, "slots", 6)))
	}
	return l
}

// amounts draws limits of some resources, in order.
func (w *World) amounts(t *rapid.T, label string, most int64) (amounts []resources.Amount) {
	for _, column := range []resources.Column{resources.CPU, resources.Memory, resources.Pods} {
		if Pick(t, label, 2) == 1 {
			amounts = append(amounts, resources.Amount{Column: column, Value: w.value(t, label, most)})
		}
	}
	if column, ok := w.Table.Lookup(v1.ResourceName("example.com/r1")); ok && Pick(t, label, 4) == 3 {
		amounts = append(amounts, resources.Amount{Column: column, Value: w.value(t, label, 4)})
	}
	return amounts
}

// setLimits changes the limits of a few.
func setLimits(t *rapid.T, e *Explorer, w *World) {
	kind, names := ledger.OfNamespace, []string{"ns", "ns", "other", ""}
	if Pick(t, "kind", 3) == 2 {
		kind, names = ledger.OfCaller, callers
	}
	changes := map[string]*ledger.Limits{}
	for range 1 + Pick(t, "changes", 2) {
		changes[oneOf(t, "name", names)] = w.limits(t)
	}
	e.limit(kind, changes)
}

// limit changes some of the limits of a kind; nil takes limits away.
func (e *Explorer) limit(kind ledger.BudgetKind, changes map[string]*ledger.Limits) {
	e.limits[kind] = merged(e.limits[kind], changes)
	e.SetLimits(kind, e.limits[kind])
}

// merged returns limits with some changed.
func merged(limits, changes map[string]*ledger.Limits) map[string]*ledger.Limits {
	all := map[string]*ledger.Limits{}
	maps.Copy(all, limits)
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, l *ledger.Limits) bool { return l == nil })
	return all
}
