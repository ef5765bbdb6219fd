package ledger

import (
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
	limits     *Limits
	own        bool // limits are not those of the rest
	used, kept []total
	slots      int64
	entries    int
}

// budgets are all of one kind. There are none where nothing is limited, so that nobody pays for them: rest has limits
// for names without limits of their own, and their budgets come and go with what they count.
type budgets struct {
	byName map[string]*budget
	rest   *budget // nil, or one that stays empty
}

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
	b.used = addTo(b.used, e.counts, sign)
	if !e.isAllocation() {
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

// limited reports whether there is any budget of a kind.
func (b *budgets) limited() bool { return b.rest != nil || len(b.byName) > 0 }

// of returns the budget of a name, nil if it is not limited. For a name that has nothing yet it may be the budget of
// the rest, in which nothing counts.
func (b *budgets) of(name string) *budget {
	if name == "" {
		return nil // it is not known whose it is
	}
	if own := b.byName[name]; own != nil {
		return own
	}
	return b.rest
}

// charge counts an entry that is being put on the account in its budgets.
func (l *account) charge(e *entry) {
	for kind := range numBudgets {
		if l.budgets[kind].limited() {
			l.chargeOne(e, kind)
		}
	}
}

func (l *account) chargeOne(e *entry, kind BudgetKind) {
	all, name := &l.budgets[kind], e.budgetName(kind)
	b := all.of(name)
	if b == nil {
		return
	}
	if b == all.rest {
		b = &budget{limits: b.limits}
		all.byName[name] = b
	}
	b.entries++
	if !e.isAllocation() {
		b.slots++
	}
	b.count(e, 1)
	e.budgets[kind] = b
}

// discharge takes an entry off its budgets.
func (l *account) discharge(e *entry) {
	for kind, b := range e.budgets {
		if b == nil {
			continue
		}
		b.count(e, -1)
		if !e.isAllocation() {
			b.slots--
		}
		if b.entries--; b.entries == 0 && !b.own {
			delete(l.budgets[kind].byName, e.budgetName(BudgetKind(kind)))
		}
		e.budgets[kind] = nil
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

// SetLimits sets the limits of some budgets of a kind, by their names; nil takes limits away.
// Those of the name "" are for all that have none of their own. Use beyond a limit stays, and
// nothing that would add to it is granted. Limits are not changed afterwards.
func (l Observer) SetLimits(kind BudgetKind, changes map[string]*Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	anew := false
	for name, limits := range changes {
		anew = l.budgets[kind].set(name, limits) || anew
	}
	if anew {
		l.recountBudgets(kind)
	}
	for _, b := range l.budgets[kind].byName {
		if !b.own {
			b.limits = l.budgets[kind].rest.limits
		}
	}
}

// set sets the limits of one name, and reports whether all budgets have to be counted anew.
func (b *budgets) set(name string, limits *Limits) (anew bool) {
	one := b.byName[name]
	switch {
	case name == "":
		anew = (b.rest == nil) != (limits == nil)
		if b.rest = nil; limits != nil {
			b.rest = &budget{limits: limits}
		}
	case limits == nil && one != nil:
		one.own, anew = false, true
	case limits != nil && one != nil:
		one.limits, one.own = limits, true
	case limits != nil:
		b.byName[name], anew = &budget{limits: limits, own: true}, true
	}
	return anew
}

// recountBudgets makes all budgets of a kind anew.
func (l *account) recountBudgets(kind BudgetKind) {
	all := &l.budgets[kind]
	for name, b := range all.byName {
		if b.own {
			all.byName[name] = &budget{limits: b.limits, own: true}
		} else {
			delete(all.byName, name)
		}
	}
	for _, n := range l.nodes {
		if n == nil {
			continue
		}
		for e := n.first; e != nil; e = e.next {
			e.budgets[kind] = nil
			l.chargeOne(e, kind)
		}
	}
}
