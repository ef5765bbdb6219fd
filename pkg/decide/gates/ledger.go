package gates

import (
	"errors"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// decides is a ledger that a GatedLedger embeds without others being able to go around the gates.
type decides = ledger.Ledger

// GatedLedger is the ledger behind the gates. The methods of the ledger that decide are reached through it alone, and
// it has one of its own for each: others are given the ledger's Reader or its Observer.
type GatedLedger struct {
	*decides
	*Gates
	// Clock is the clock of the ledger's deadlines.
	Clock *steady.Clock

	undecided func() string
}

// NewGatedLedger puts the gates before a ledger. undecided returns why nothing can be
// decided now, or "": the account may be incomplete, or another server may be deciding.
func NewGatedLedger(l *ledger.Ledger, clock *steady.Clock, g *Gates, undecided func() string) *GatedLedger {
	return &GatedLedger{decides: l, Gates: g, Clock: clock, undecided: undecided}
}

// Undecided returns why nothing can be decided now, "" where decisions can be made.
func (l *GatedLedger) Undecided() string { return l.undecided() }

// Ready returns why nothing can be decided now, nil where decisions can be made.
func (l *GatedLedger) Ready() *Error {
	if why := l.undecided(); why != "" {
		return &Error{Outcome: NotReady, Why: why}
	}
	return nil
}

// Pass returns why something cannot be decided now, or must not be given capacity.
func (l *GatedLedger) Pass(asked *ledger.Placement) error {
	if err := l.Ready(); err != nil {
		return err.Of(asked.Pod, asked.Node)
	}
	return l.Refuse(asked)
}

// RefuseSlot returns why a slot must not be given capacity, nil if it may. The error is an *Error.
func (l *GatedLedger) RefuseSlot(slot *ledger.Slot) error { return l.Refuse(askedFor(slot)) }

// askedFor is what is asked for by a slot.
func askedFor(slot *ledger.Slot) *ledger.Placement {
	asked := slot.Placement()
	if asked.Pod.Namespace == "" {
		asked.Pod.Namespace = slot.Ref.Namespace
	}
	return &asked
}

// StartBind begins a bind if the gates let the pod pass and there is capacity for it. The error is an *Error.
func (l *GatedLedger) StartBind(p *ledger.Placement) (ledger.Grant, error) {
	if err := l.Pass(p); err != nil {
		return ledger.Grant{}, err
	}
	grant, rejection := l.decides.StartBind(p, l.Clock.Now())
	return granted(p, grant, rejection)
}

// ChangeBind makes a bind that has begun count for what is asked now, if the gates let that pass and there is capacity
// for it; see ledger.Ledger. The error is an *Error.
func (l *GatedLedger) ChangeBind(p *ledger.Placement) (ledger.Grant, error) {
	if err := l.Pass(p); err != nil {
		return ledger.Grant{}, err
	}
	grant, rejection := l.decides.ChangeBind(p, l.Clock.Now())
	return granted(p, grant, rejection)
}

func granted(p *ledger.Placement, grant ledger.Grant, rejection *ledger.Rejection) (ledger.Grant, error) {
	if rejection != nil {
		return ledger.Grant{}, &Error{Outcome: Refused, Pod: p.Pod, Node: p.Node, Rejection: rejection}
	}
	return grant, nil
}

// StartBindWith begins a bind and changes what is kept for others in the same step, if the gates let all of them pass
// and there is capacity; see ledger.Ledger. The error is an *Error.
func (l *GatedLedger) StartBindWith(p *ledger.Placement, x *ledger.Exchange) (ledger.Grant, error) {
	if err := l.Pass(p); err != nil {
		return ledger.Grant{}, err
	}
	for i := range x.Keep {
		for k := range x.Keep[i].Slots {
			if err := l.RefuseSlot(&x.Keep[i].Slots[k]); err != nil {
				return ledger.Grant{}, err
			}
		}
	}
	grant, rejection := l.decides.StartBindWith(p, x, l.Clock.Now())
	return granted(p, grant, rejection)
}

// Exchange changes what is kept in memory for the rest of gangs that have started. It does not wait until
// decisions can be made: a server that takes over calls it before. Nor does it ask the gates, as a member of the gang
// has passed them, which is of no use without the rest.
func (l *GatedLedger) Exchange(x *ledger.Exchange) error {
	if rejection := l.decides.Exchange(x, l.Clock.Now()); rejection != nil {
		return &Error{Outcome: Refused, Pod: rejection.Pod, Node: rejection.Node, Rejection: rejection}
	}
	return nil
}

// Resize grows the allocation of a pod, if the gates let that pass and there is capacity for it; see ledger.Ledger.
// Where dry is set it only tries. found is false where the pod has no allocation. The error is an *Error.
func (l *GatedLedger) Resize(asked *ledger.Placement, version uint64, dry bool) (found bool, err error) {
	if err := l.Pass(asked); err != nil {
		return true, err
	}
	var rejection *ledger.Rejection
	if dry {
		found, rejection = l.FitResize(asked.Pod, asked.Request)
	} else {
		found, rejection = l.decides.Resize(asked.Pod, asked.Request, version, l.Clock.Now())
	}
	if rejection != nil {
		return true, &Error{Outcome: Refused, Pod: asked.Pod, Node: asked.Node, Resize: true, Rejection: rejection}
	}
	return found, nil
}

// Reserve carries out a plan, or only tries it, if the gates let all its slots pass. The
// error is the *Error of the first slot that does not pass.
func (l *GatedLedger) Reserve(plan ledger.Plan, dry bool) (result ledger.Result, err error) {
	for i := range plan.Slots {
		if err := l.Pass(askedFor(&plan.Slots[i])); err != nil {
			return ledger.Result{Revision: l.Revision()}, err
		}
	}
	if !dry {
		return l.decides.Reserve(plan, l.Clock.Now()), nil
	}
	l.Try(func(t *ledger.Trial) { result = t.Reserve(plan) })
	return result, nil
}

// IsNotReady reports whether an error says that nothing can be decided now.
func IsNotReady(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Outcome == NotReady
}

// IsPodGone reports whether an error says that there is no such pod, or that it is ending.
func IsPodGone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Outcome == PodGone
}
