package ledger

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// BudgetKind says whose budget one is.
type BudgetKind uint8

// The kinds of budgets. All that uses capacity counts in one of each kind, where there are any.
const (
	OfNamespace BudgetKind = iota
	OfCaller
	numBudgets
)

// Limits are what a budget may hold over all nodes. Amounts are ordered by column; a
// resource that is not among them is not limited.
type Limits struct {
	// Use is the most that pods and slots may use together, as the nodes count it.
	Use []resources.Amount
	// Keep is the most that the slots of a namespace may keep beyond what their pods ask for.
	Keep []resources.Amount
	// Slots is how many slots a namespace may have, those in memory included; nil means any number.
	Slots *int64
}

// useLimits are the reasons to refuse what a budget's use does not leave space for.
var useLimits = [numBudgets]Reason{OfNamespace: QuotaExceeded, OfCaller: CallerLimit}

// budget is the account of all that belongs to one namespace, or one caller.
type budget struct {
	used, kept []total
	slots      int64
	entries    int64 // slots included
}

// budgets are all of one kind. Whoever has something has a budget, limited or not.
type budgets struct {
	byName map[string]*budget
	limits map[string]*Limits // those of the name "" are for all that have none of their own
}

// empty is the budget of a name that has nothing yet.
var empty = &budget{}

// total is a sum of amounts that is never rounded, so that all of it can be taken back. It is not below 0.
type total struct {
	high int64
	low  uint64
}

func (t *total) add(value int64) {
	low, carry := bits.Add64(t.low, uint64(value), 0) //nolint:gosec // two's complement: high has the sign
	t.low = low
	t.high += value>>63 + int64(carry) //nolint:gosec // 0 or 1
}

// value is the largest number there is where the sum has no int64.
func (t total) value() int64 {
	if t.high != 0 || t.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(t.low)
}

func totalAt(totals []total, c resources.Column) int64 {
	if int(c) < len(totals) {
		return totals[c].value()
	}
	return 0
}

// addTo adds (sign 1) or takes back (sign -1) a request's amounts.
func addTo(totals []total, req *resources.Request, sign int64) []total {
	for _, a := range req.Amounts {
		for int(a.Column) >= len(totals) {
			totals = append(totals, total{})
		}
		totals[a.Column].add(sign * a.Value)
	}
	return totals
}

// count adds (sign 1) or takes back (sign -1) what an entry counts for.
func (b *budget) count(e *entry, sign int64) {
	b.entries += sign
	b.used = addTo(b.used, e.counts, sign)
	if !e.isAllocation() {
		b.slots += sign
		b.kept = addTo(b.kept, e.counts, sign)
	}
}

// namespace is the one that an entry belongs to.
func (e *entry) namespace() string {
	if e.slot != nil {
		return e.slot.ref.Namespace
	}
	return e.pod.Namespace
}

// budgetName is the name of the budget of a kind that an entry counts in.
func (e *entry) budgetName(kind BudgetKind) string {
	if kind == OfNamespace {
		return e.namespace()
	}
	return e.caller
}

// limitsOf returns the limits of a name, nil if it is not limited.
func (b *budgets) limitsOf(name string) *Limits {
	if name == "" {
		return nil // it is not known whose it is
	}
	return cmp.Or(b.limits[name], b.limits[""])
}

// of returns the budget of a name, which may be empty.
func (b *budgets) of(name string) *budget { return cmp.Or(b.byName[name], empty) }

// charge counts an entry that is being put on the account in its budgets.
func (l *account) charge(e *entry) {
	for kind := range numBudgets {
		name := e.budgetName(kind)
		if name == "" {
			continue
		}
		b := l.budgets[kind].byName[name]
		if b == nil {
			b = &budget{}
			l.budgets[kind].byName[name] = b
		}
		b.count(e, 1)
		e.budgets[kind] = b
	}
}

// discharge takes an entry off its budgets.
func (l *account) discharge(e *entry) {
	e.tally(-1)
	clear(e.budgets[:])
}

// dropBudgets forgets the budgets that an entry counted in where nothing else does.
func (l *account) dropBudgets(e *entry) {
	for kind := range numBudgets {
		if name := e.budgetName(kind); l.budgets[kind].of(name).entries == 0 {
			delete(l.budgets[kind].byName, name)
		}
	}
}

// tally adds (sign 1) or takes back (sign -1) what an entry counts for, which is about to change or has changed.
func (e *entry) tally(sign int64) {
	for _, b := range e.budgets {
		if b != nil {
			b.count(e, sign)
		}
	}
}

// SetLimits sets the limits of all budgets of a kind, by their names. Those of the name "" are for all that have none
// of their own. Use beyond a limit stays, and nothing that would add to it is granted. The ledger keeps the map, so it
// must not be changed afterwards.
func (l Observer) SetLimits(kind BudgetKind, limits map[string]*Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budgets[kind].limits = limits
}
