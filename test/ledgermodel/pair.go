package ledgermodel

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Pair is a ledger next to the naive model and a mirror fed by its events. Each
// operation is done on both; the first difference is kept in Err, and nothing
// is done after it.
type Pair struct {
	Ledger *ledger.Ledger
	Model  *Model
	Err    error

	check  Check
	mirror *Mirror
	told   int // events of the model compared so far
}

// NewPair returns an empty ledger and its companions.
func NewPair(o ledger.Options, check Check) *Pair {
	l := ledger.New(o)
	return &Pair{
		check: check, Ledger: l, Model: NewModel(l.Table()), mirror: NewMirror(l.Table(), o.FirstRevision),
	}
}

// differ keeps the first difference.
func (p *Pair) differ(what string, got, want any) {
	if p.Err == nil && !reflect.DeepEqual(got, want) {
		p.Err = fmt.Errorf("%s:\nledger %+v\nmodel  %+v", what, got, want)
	}
}

// Reserve compares a plan's results.
func (p *Pair) Reserve(plan ledger.Plan, now time.Time) {
	before := p.Ledger.Revision()
	soonest, expires := p.Model.NextDeadline()
	expires = expires && !soonest.After(now)
	got, want := p.Ledger.Reserve(plan, now), p.Model.Reserve(plan, now)
	p.differ("revision of a plan", got.Revision, p.Ledger.Revision())
	p.result("reserve", got, want)
	if got.Granted == 0 && !expires {
		p.differ("revision after a plan that changes nothing", p.Ledger.Revision(), before)
	}
}

// Try compares what a plan, and a question after it, is answered where some pods are gone.
// Nothing may be left of it.
func (p *Pair) Try(plan ledger.Plan, gone []types.UID, at *ledger.Placement, nodes []string) {
	before, was := p.Ledger.Revision(), p.Ledger.Snapshot()
	var got ledger.Result
	var fit []ledger.Verdict
	all := map[string]ledger.Verdict{}
	p.Ledger.Try(func(t *ledger.Trial) {
		t.Remove(gone...)
		got = t.Reserve(plan)
		fit = t.AppendFit(nil, at, nodes)
		t.FitAll(at, func(node string, v ledger.Verdict) bool { all[node] = v; return true })
	})
	trial, want := p.Model.Without(gone).Try(plan)
	p.result("try", got, want)
	p.differ("fit after a try", fit, trial.AppendFit(nil, at, nodes))
	p.differ("fit of all nodes after a try", all, trial.FitAll(at))
	p.differ("revision after a try", p.Ledger.Revision(), before)
	p.differ("the ledger after a try", p.Ledger.Snapshot(), was)
}

func (p *Pair) result(what string, got, want ledger.Result) {
	p.differ(what+": granted", got.Granted, want.Granted)
	if len(got.Existing)+len(want.Existing) > 0 {
		p.differ(what+": existing", got.Existing, want.Existing)
	}
	if len(got.Held)+len(want.Held) > 0 {
		p.differ(what+": held", got.Held, want.Held)
	}
	p.differ(what+": number of rejections", len(got.Rejections), len(want.Rejections))
	for k := range want.Rejections {
		if p.Err == nil {
			p.rejection(what, &got.Rejections[k], &want.Rejections[k])
		}
	}
}

// rejection compares all but the holders exactly. Of those the ledger lists a
// few, largest first, and may choose among equals.
func (p *Pair) rejection(what string, got, want *ledger.Rejection) {
	p.differ(what+": rejected", got != nil, want != nil)
	if p.Err != nil || got == nil {
		return
	}
	holders := slices.Clone(want.Holders)
	listed := min(len(holders), 5)
	if want.Reason == ledger.DeviceClaimInUse {
		listed = 1
	}
	p.differ(what+": number of holders", len(got.Holders), listed)
	for k, h := range got.Holders {
		at := slices.Index(holders, h)
		if p.Err == nil && (at < 0 || h.Amount != want.Holders[k].Amount) {
			p.Err = fmt.Errorf("%s: holder %d is %+v; the model has %+v", what, k, h, want.Holders)
		}
		if at >= 0 {
			holders = slices.Delete(holders, at, at+1)
		}
	}
	g, w := *got, *want
	g.Holders, w.Holders = nil, nil
	p.differ(what+": rejection", g, w)
	if p.Err == nil && got.Message() == "" {
		p.Err = fmt.Errorf("%s: rejection %+v has no message", what, g)
	}
}

// StartBind compares the start of a bind, also with what was foreseen.
func (p *Pair) StartBind(at *ledger.Placement, now time.Time) {
	p.Expire(now)
	var foreseen *ledger.Grant
	p.Ledger.Try(func(t *ledger.Trial) {
		if !at.Preempt && t.AppendFit(nil, at, []string{at.Node})[0].Reason == ledger.Fits {
			foreseen = new(t.Grant(at))
		}
	})
	grant, rejection := p.Ledger.StartBind(at, now)
	if foreseen != nil {
		p.differ("grant as foreseen", *foreseen, grant)
	}
	wantGrant, want := p.Model.StartBind(at, now)
	p.differ("start bind: grant", grant, wantGrant)
	p.rejection("start bind", rejection, want)
}

// ChangeBind compares a bind that is changed.
func (p *Pair) ChangeBind(at *ledger.Placement, now time.Time) {
	grant, rejection := p.Ledger.ChangeBind(at, now)
	wantGrant, want := p.Model.ChangeBind(at, now)
	p.differ("change bind: grant", grant, wantGrant)
	p.rejection("change bind", rejection, want)
}

// Preempt compares the start of a bind that may end reservations, which has to
// do what was said when asked before.
func (p *Pair) Preempt(at *ledger.Placement, now time.Time) {
	p.Expire(now)
	may := *at
	may.Preempt = true
	verdict := p.Ledger.AppendFit(nil, &may, []string{at.Node})[0]
	p.askRefusals(at)
	p.differ("preempting fit", verdict, p.Model.AppendFit(nil, &may, []string{at.Node})[0])
	fresh, slots := p.Model.find(at.Pod) == nil, p.Ledger.Stats().Slots
	p.StartBind(&may, now)
	if fresh {
		_, granted := p.Ledger.Allocation(at.Pod)
		p.differ("bind as foreseen", granted, verdict.Reason == ledger.Fits)
		if !granted {
			p.differ("slots after a refusal", p.Ledger.Stats().Slots, slots)
		}
	}
}

// ObserveSlot compares the record of a slot granted before.
func (p *Pair) ObserveSlot(spec ledger.Slot) {
	p.differ("observe slot", p.Ledger.ObserveSlot(spec), p.Model.ObserveSlot(spec))
}

// SetSlotDeadline compares a change of when slots end.
func (p *Pair) SetSlotDeadline(namespace, name string, at time.Time) {
	p.differ("set deadline", p.Ledger.SetSlotDeadline(namespace, name, at), p.Model.SetSlotDeadline(namespace, name, at))
}

// ReleaseSlots compares slots given back.
func (p *Pair) ReleaseSlots(namespace, name string, slots ...string) {
	p.differ("release slots", p.Ledger.ReleaseSlots(namespace, name, slots...),
		p.Model.ReleaseSlots(namespace, name, slots...))
}

// RemovePodHolding compares the swap of a pod for a slot.
func (p *Pair) RemovePodHolding(pod ledger.PodRef, version uint64, spec ledger.Slot) {
	got, refused := p.Ledger.RemovePodHolding(pod, version, spec)
	want, wantRefused := p.Model.RemovePodHolding(pod, version, spec)
	p.differ("remove pod holding", got, want)
	p.rejection("remove pod holding", refused, wantRefused)
}

// Confirm compares the record of a bind that succeeded.
func (p *Pair) Confirm(pod ledger.PodRef, node string) {
	p.differ("confirm", p.Ledger.Confirm(pod, node), p.Model.Confirm(pod, node))
}

// BindFailed compares the record of a bind that failed.
func (p *Pair) BindFailed(pod ledger.PodRef, node string) {
	p.differ("bind failed", p.Ledger.BindFailed(pod, node), p.Model.BindFailed(pod, node))
}

// Resize compares what is said of a resize before, and then done.
func (p *Pair) Resize(pod ledger.PodRef, asked *resources.Request, version uint64, now time.Time) {
	p.Expire(now)
	_, fit := p.Ledger.FitResize(pod, asked)
	_, wantFit := p.Model.FitResize(pod, asked)
	p.rejection("fit resize", fit, wantFit)
	found, got := p.Ledger.Resize(pod, asked, version, now)
	wantFound, want := p.Model.Resize(pod, asked, version, now)
	p.differ("resize found", found, wantFound)
	p.rejection("resize", got, want)
}

// SettleResize compares the end of a resize that was granted.
func (p *Pair) SettleResize(pod ledger.PodRef, version uint64) {
	p.differ("settle resize", p.Ledger.SettleResize(pod, version), p.Model.SettleResize(pod, version))
}

// Unreserve compares reservations given back.
func (p *Pair) Unreserve(placements []ledger.Placement) {
	p.result("unreserve", p.Ledger.Unreserve(placements), p.Model.Unreserve(placements))
}

// SetLimits sets limits.
func (p *Pair) SetLimits(kind ledger.BudgetKind, changes map[string]*ledger.Limits) {
	p.Ledger.SetLimits(kind, changes)
	p.Model.SetLimits(kind, changes)
}

// Expire compares reservations that end.
func (p *Pair) Expire(now time.Time) {
	p.differ("expire", p.Ledger.Expire(now), p.Model.Expire(now))
}

// ObserveNode compares the record of a node.
func (p *Pair) ObserveNode(o ledger.NodeObservation) {
	p.differ("observe node", p.Ledger.ObserveNode(o), p.Model.ObserveNode(o))
}

// ObserveDevices compares the record of a node's devices.
func (p *Pair) ObserveDevices(node string, list []devices.Device) {
	p.differ("observe devices", p.Ledger.ObserveDevices(node, list), p.Model.ObserveDevices(node, list))
}

// RemoveNode compares the record of a node that is gone.
func (p *Pair) RemoveNode(name string) {
	p.differ("remove node", p.Ledger.RemoveNode(name), p.Model.RemoveNode(name))
}

// ObservePod compares the record of a pod found bound.
func (p *Pair) ObservePod(o ledger.PodObservation) {
	p.differ("observe pod", p.Ledger.ObservePod(o), p.Model.ObservePod(o))
}

// ObserveUnbound compares the record of a pod that exists.
func (p *Pair) ObserveUnbound(pod ledger.PodRef, scheduler string) {
	p.differ("observe unbound", p.Ledger.ObserveUnbound(pod, scheduler), p.Model.ObserveUnbound(pod, scheduler))
}

// Nominate compares what is kept for a pod that is nominated.
func (p *Pair) Nominate(at *ledger.Placement, until time.Time) {
	p.differ("nominate", p.Ledger.Nominate(at, until), p.Model.Nominate(at, until))
}

// RemovePod compares the record of a pod that is gone.
func (p *Pair) RemovePod(pod ledger.PodRef, version uint64) {
	p.differ("remove pod", p.Ledger.RemovePod(pod, version), p.Model.RemovePod(pod, version))
}

// Check compares everything there is to see, and the events that led there.
func (p *Pair) Check() error {
	if p.Err == nil {
		p.Err = p.check(p.Ledger)
	}
	p.events()
	s := p.Ledger.Snapshot()
	p.differ("nodes", s.Nodes, p.Model.NodeViews())
	p.differ("claims", s.Allocations, p.Model.AllocationViews())
	p.differ("slots", s.Slots, p.Model.SlotViews())
	for _, kind := range []ledger.BudgetKind{ledger.OfNamespace, ledger.OfCaller} {
		p.differ("budgets", p.Ledger.Budgets(kind), p.Model.Budgets(kind))
	}
	p.differ("stats", p.Ledger.Stats(), p.Model.Stats())
	deadline, ok := p.Ledger.NextDeadline()
	want, wantOK := p.Model.NextDeadline()
	p.differ("next deadline", []any{deadline, ok}, []any{want, wantOK})
	p.usage()
	p.names()
	p.differ("mirror", p.announced(s), p.announced(p.mirror.Snapshot()))
	return p.Err
}

// announced leaves out of a snapshot what events do not announce: a toleration that
// a pod got later changes no account. What DRA gives is left out of nodes: whether it is left to DRA depends on which
// pods were seen there.
func (p *Pair) announced(s ledger.Snapshot) ledger.Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	for k := range s.Nodes {
		view := &s.Nodes[k]
		view.Amounts = slices.DeleteFunc(slices.Clone(view.Amounts), func(a ledger.AmountView) bool {
			n := p.Model.nodes[view.Name]
			return n != nil && n.dra[a.Resource] && a.Allocatable == 0
		})
	}
	for k := range s.Allocations {
		s.Allocations[k].Growing = false
		request := *s.Allocations[k].Request
		request.ToleratesUnschedulable = false
		s.Allocations[k].Request = &request
	}
	for k := range s.Slots {
		request := *s.Slots[k].Request
		request.ToleratesUnschedulable = false
		if s.Slots[k].Rest == s.Slots[k].Request {
			s.Slots[k].Rest = &request
		}
		s.Slots[k].Request = &request
	}
	return s
}

// events compares the events since the last time and feeds them to the mirror.
// Allocations that expire at the same moment may do so in any order, and so may slots.
func (p *Pair) events() {
	got, ok := p.Ledger.EventsSince(nil, p.mirror.revision, 1<<30)
	p.differ("journal reaches back", ok, true)
	want := slices.Clone(p.Model.Events[p.told:])
	p.told = len(p.Model.Events)
	if len(got) != len(want) {
		p.differ("events", got, want)
	}
	for k := range got {
		if p.Err != nil {
			return
		}
		e := got[k]
		e.Revision = 0
		at := slices.IndexFunc(want, func(w ledger.Event) bool { return reflect.DeepEqual(e, w) })
		if at != 0 && (at < 0 || !lapsedTogether(&e, &want[0])) {
			p.differ(fmt.Sprintf("event %d", k), e, want[0])
			return
		}
		want = slices.Delete(want, at, at+1)
		p.Err = p.mirror.Apply(&got[k])
	}
}

// lapsedTogether reports whether two events tell of slots of one kind whose deadline passed
// at the same moment. One may have to wait for a bind then.
func lapsedTogether(a, b *ledger.Event) bool {
	slot := func(e *ledger.Event) bool {
		return e.Type == ledger.SlotExpired || e.Type == ledger.SlotPlaced && e.Overdue
	}
	return slot(a) && slot(b) && (a.Slot.Name == "") == (b.Slot.Name == "") && a.Deadline.Equal(b.Deadline)
}
