package arbiter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter/refused"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/tracing"
)

// BindingQuery is a Binding that the API server asks about before it carries it out.
type BindingQuery struct {
	// Pod may lack the UID, where the Binding does not name it.
	Pod ledger.PodRef
	// Version is the resource version that the pod must have, "" for any.
	Version string
	Node    string
	// User is who sent the Binding: its caller.
	User   string
	DryRun bool
}

// Admitted is what is known of a pod whose Binding, or creation, is asked about.
type Admitted struct {
	// Pod is nil where nothing is known of it. A Binding may be allowed only with its UID
	// and its version as preconditions: see pending.
	Pod *cluster.Pod
	// Own says that the Binding is of a bind of this Arbiter, which looks after it itself:
	// it is to be allowed as it is.
	Own bool
	// Undecided says that a resize takes nothing that its pod does not have.
	Undecided bool
	// Annotations tell the pod what it was granted.
	Annotations map[string]string
}

// AdmitBinding decides whether a Binding may be carried out. What it grants stays
// granted until it is known what became of the Binding; see pending. An error that is
// an *Error or an *UncountableError says why it may not.
func (a *Arbiter) AdmitBinding(ctx context.Context, q *BindingQuery) (Admitted, error) {
	ctx, span := tracing.Start(ctx, decideSpan)
	defer span.End()
	version, _ := strconv.ParseUint(q.Version, 10, 64) // what is no number matches no pod
	pod, err := a.pods.find(ctx, q.Pod, version)
	if err != nil {
		return Admitted{}, err
	}
	if err := q.check(pod); err != nil {
		return Admitted{Pod: pod}, err
	}
	return a.admit(ctx, &admission{pod: pod.AskedBy(q.User), node: q.Node, own: a.pending.isSelf(q.User)}, q.DryRun)
}

// check refuses a pod that the API server would not bind.
func (q *BindingQuery) check(pod *cluster.Pod) error {
	e := &Error{Pod: pod.Ref, Node: q.Node}
	switch version := formatVersion(pod); {
	case pod.Node != "":
		e.Outcome, e.BoundTo = BoundElsewhere, pod.Node
	case pod.Deleting || pod.Finished:
		e.Outcome = PodGone
	case q.Version != "" && q.Version != version:
		e.Outcome = Changed
	case pod.ResourceVersion == 0:
		e.Outcome, e.Cause = Failed, errNoVersion
	default:
		return nil
	}
	return e
}

var errNoVersion = errors.New("its resourceVersion is not a number")

func formatVersion(pod *cluster.Pod) string { return strconv.FormatUint(pod.ResourceVersion, 10) }

// AdmitPod decides whether a user may create a pod on a node. The pod is what the API
// server is about to create, without a UID and without the node. What it grants stays
// granted until it is known whether the pod was created; see pending. Its errors are
// those of AdmitBinding.
func (a *Arbiter) AdmitPod(ctx context.Context, pod *v1.Pod, node, user string, dryRun bool) (Admitted, error) {
	ctx, span := tracing.Start(ctx, decideSpan)
	defer span.End()
	ref := ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name}
	info, err := a.o.Question.Reader.NewPod(pod)
	if err != nil {
		return Admitted{}, &UncountableError{Pod: ref, Cause: err}
	}
	taken, err := a.pods.exists(ctx, ref)
	switch {
	case err != nil:
		return Admitted{Pod: info}, err
	case taken:
		return Admitted{Pod: info}, &Error{Outcome: NameTaken, Pod: ref, Node: node}
	}
	return a.admit(ctx, &admission{pod: info.AskedBy(user), node: node, create: true}, dryRun)
}

// admission is a Binding, or a pod, that is to be allowed.
type admission struct {
	pod       *cluster.Pod
	node      string
	placement ledger.Placement
	own       bool // this server has sent it
	create    bool // the pod is being created
}

// admit passes the gates and asks the ledger. A trial grants nothing.
func (a *Arbiter) admit(ctx context.Context, k *admission, trial bool) (Admitted, error) {
	said, err := a.admitOne(ctx, k, trial)
	if err != nil && !trial {
		a.refusedFor(refused.Admission, &ledger.Placement{Pod: k.pod.Ref, Node: k.node, Caller: k.pod.Caller, Scheduler: k.pod.Scheduler}, err)
	}
	return said, err
}

func (a *Arbiter) admitOne(ctx context.Context, k *admission, trial bool) (Admitted, error) {
	said := Admitted{Pod: k.pod}
	uid := k.pod.Ref.UID
	k.placement = a.o.Question.Of(k.pod, k.node)
	if err := a.o.Ledger.Pass(&k.placement); err != nil {
		return said, err
	}
	k.placement.Preempt = uid != "" && a.preemptors.isAllowed(uid)
	if trial {
		said.Annotations = a.o.Term().Annotate(a.granted(k.pod, &ledger.Grant{Caller: k.pod.Caller}))
		return said, a.tryOut(&k.placement)
	}
	grant, own, err := a.allow(ctx, k)
	if err != nil || own {
		said.Own = own
		return said, err
	}
	if k.create {
		grant.Caller = k.pod.Caller // whoever creates a pod names itself alone, see manifests/base/records.yaml
	}
	said.Annotations = a.o.Term().Annotate(a.granted(k.pod, &grant))
	return said, nil
}

// allow has the ledger decide, and remembers what it granted.
func (a *Arbiter) allow(ctx context.Context, k *admission) (grant ledger.Grant, own bool, err error) {
	grant, own, err = a.tryAllow(k)
	var e *Error
	elsewhere := errors.As(err, &e) && e.Rejection != nil && e.Rejection.Reason == ledger.AllocatedElsewhere
	if elsewhere && !k.create && a.settleEarly(ctx, k.pod.Ref) {
		return a.tryAllow(k)
	}
	return grant, own, err
}

func (a *Arbiter) tryAllow(k *admission) (grant ledger.Grant, own bool, err error) {
	a.pending.mu.Lock()
	defer a.pending.mu.Unlock()
	ref := k.pod.Ref
	fail := func(outcome Outcome) (ledger.Grant, bool, error) {
		return ledger.Grant{}, false, &Error{Outcome: outcome, Pod: ref, Node: k.node, BoundTo: k.node}
	}
	before := a.pending.of[ref]
	switch {
	case a.pending.stopped:
		return fail(Stopping)
	case before == nil && a.pending.crowded(ref.Namespace, a.o.MaxPending):
		return ledger.Grant{}, false, a.pending.busy(ref, k.node)
	case k.create:
		cluster.ObserveUnbound(a.o.Ledger.Observer, a.o.Log, k.pod) // it is not seen before it has its node
		allocation, allocated := a.o.Ledger.Allocation(ref)
		slot, kept := a.o.Ledger.InMemory(ref)
		if (allocated && allocation.Pod.UID != "") || (kept && slot.Pod.UID != "") {
			return fail(NotGone)
		}
	}
	grant, err = a.gangs.startBind(k.pod, &k.placement)
	if err == nil && grant.Before == ledger.Binding && before != nil && !before.covers(&k.placement) {
		grant, err = a.change(k, before)
	}
	switch {
	case err != nil:
		return ledger.Grant{}, false, err
	case grant.Before == ledger.Bound:
		return fail(BoundElsewhere)
	case grant.Before == ledger.Binding && before == nil && k.own:
		return ledger.Grant{}, true, nil
	case grant.Before == ledger.Binding && before == nil:
		return fail(InFlight)
	}
	a.preemptors.withdraw(ref.UID)
	a.remember(k, before)
	return grant, false, nil
}

// change has what was allowed count for what is asked now: the pod has changed (what it asks for, or the devices it claims),
// or another webhook has changed it, or another pod of its name is created at the same time. What was allowed may still be
// carried out. A Binding is not once its pod has changed, but a creation may be: that counts for all that was allowed until
// one of them is seen. a.pending.mu is held.
func (a *Arbiter) change(k *admission, before *pending) (ledger.Grant, error) {
	claims := k.placement.Devices
	switch {
	case !k.create && k.pod.ResourceVersion > before.version:
		return a.o.Ledger.ChangeBind(&k.placement)
	case !k.create: // its claims are others by now, or this is older; what was allowed is withdrawn before long
		return ledger.Grant{}, &Error{Outcome: InFlight, Pod: k.pod.Ref, Node: k.node}
	case before.devices == nil || before.devices.Same(claims):
	case claims == nil:
		k.placement.Devices = before.devices
	default: // it would lose the devices that it was told
		return ledger.Grant{}, &Error{Outcome: InFlight, Pod: k.pod.Ref, Node: k.node}
	}
	k.placement.Request = both(before.request, k.placement.Request)
	grant, err := a.o.Ledger.ChangeBind(&k.placement)
	if claims == nil {
		grant.Devices = slices.DeleteFunc(slices.Clone(grant.Devices), func(d ledger.GivenDevices) bool { return d.Claim.Name != "" })
	}
	return grant, err
}

// both is what covers two requests, of which the first was granted.
func both(granted, asked *resources.Request) *resources.Request {
	all := *asked
	all.Amounts, all.Ports = slices.Clone(asked.Amounts), slices.Clone(granted.Ports)
	for _, a := range granted.Amounts {
		at, ok := slices.BinarySearchFunc(all.Amounts, a, func(x, y resources.Amount) int { return cmp.Compare(x.Column, y.Column) })
		if ok {
			all.Amounts[at].Value = max(all.Amounts[at].Value, a.Value)
		} else {
			all.Amounts = slices.Insert(all.Amounts, at, a)
		}
	}
	for _, port := range asked.Ports {
		if !slices.Contains(all.Ports, port) {
			all.Ports = append(all.Ports, port)
		}
	}
	return &all
}

// remember makes a binding pending, or pending once more. a.pending.mu is held.
func (a *Arbiter) remember(k *admission, before *pending) {
	p := before
	if p == nil || p.node != k.node {
		p = &pending{
			ref: k.pod.Ref, node: k.node, scheduler: k.pod.Scheduler, request: k.placement.Request, create: k.create,
		}
		a.pending.add(p)
	}
	if !covers(p.request, k.placement.Request) {
		p.request = k.placement.Request
	}
	p.devices, p.version = k.placement.Devices, max(p.version, k.pod.ResourceVersion)
	wait := grace
	if p.create {
		wait = createGrace
	}
	p.allowed = time.Now()
	p.due, p.pause = p.allowed.Add(wait), 0
	p.generation++
}

// covers reports whether what is allowed already is enough for what is asked now.
func (p *pending) covers(asked *ledger.Placement) bool {
	return covers(p.request, asked.Request) && p.devices.Same(asked.Devices)
}

func covers(allocated, asked *resources.Request) bool {
	for _, a := range asked.Amounts {
		if a.Value > allocated.Value(a.Column) {
			return false
		}
	}
	return slices.Equal(allocated.Ports, asked.Ports) && slices.Equal(allocated.Unlisted, asked.Unlisted)
}

// tryOut decides without changing anything.
func (a *Arbiter) tryOut(p *ledger.Placement) error {
	allocation, allocated := a.o.Ledger.Allocation(p.Pod)
	if allocated && allocation.State == ledger.Bound && allocation.Node == p.Node {
		return &Error{Outcome: BoundElsewhere, Pod: p.Pod, Node: p.Node, BoundTo: p.Node}
	}
	var rejections []ledger.Rejection
	a.o.Ledger.Try(func(t *ledger.Trial) {
		if !fitsAny(t.AppendFit(nil, p, []string{p.Node})) {
			rejections = t.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, time.Time{})).Rejections
		}
	})
	if len(rejections) == 0 {
		return nil
	}
	return &Error{Outcome: Refused, Pod: p.Pod, Node: p.Node, Rejection: &rejections[0]}
}
