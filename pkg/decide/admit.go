package decide

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/resources"
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
	// and its version as preconditions: see allowance.
	Pod *cluster.Pod
	// Own says that the Binding belongs to a bind of this Arbiter, which looks after it itself.
	// Such a Binding is to be allowed as it is.
	Own bool
	// Undecided says that a resize takes nothing that its pod does not have.
	Undecided bool
	// Annotations record on the pod what it was granted.
	Annotations map[string]string
	// RedirectTo is the node that a Binding is to go to, "" where that is the one it names.
	RedirectTo string
	// Times is how often a repeated Binding has been refused. It is 0 the first time.
	Times int
}

// AdmitBinding decides whether a Binding may be carried out. What it grants stays granted until it is known what became
// of the Binding; see allowance. An error that is an *Error or an *UncountableError says why it may not.
func (a *Arbiter) AdmitBinding(ctx context.Context, q *BindingQuery) (Admitted, error) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	version, _ := strconv.ParseUint(q.Version, 10, 64) // what is no number matches no pod
	pod, err := a.findToBind(ctx, q.Pod, version, q.Node)
	if err != nil {
		return Admitted{}, err
	}
	if err := q.check(pod); err != nil {
		return Admitted{Pod: pod}, err
	}
	k := &admission{pod: pod.WithCaller(q.User), node: q.Node, own: a.allowances.isSelf(q.User)}
	if k.own { // it has passed the gates for the caller that it belongs to
		k.pod = pod.WithCaller(ledger.Trusted)
	}
	return a.admit(ctx, k, q.DryRun)
}

// check refuses a pod that the API server would not bind.
func (q *BindingQuery) check(pod *cluster.Pod) error {
	e := &gates.Error{Pod: pod.Ref, Node: q.Node}
	switch version := formatVersion(pod); {
	case pod.Node != "":
		e.Outcome, e.BoundTo = gates.BoundElsewhere, pod.Node
	case pod.Deleting || pod.Finished:
		e.Outcome = gates.PodGone
	case pod.Gated:
		e.Outcome = gates.Gated
	case q.Version != "" && q.Version != version:
		e.Outcome = gates.Changed
	case pod.ResourceVersion == 0:
		e.Outcome, e.Cause = gates.Failed, errNoVersion
	default:
		return nil
	}
	return e
}

var errNoVersion = errors.New("its resourceVersion is not a number")

func formatVersion(pod *cluster.Pod) string { return strconv.FormatUint(pod.ResourceVersion, 10) }

// admission is a Binding, or a pod, that is to be allowed.
type admission struct {
	pod  *cluster.Pod
	node string // the node asked for
	// placement is the question to the ledger. For a redirected Binding it is for another node, and from is the node that
	// was asked for first.
	placement ledger.Placement
	from      string
	to        string // where it may be redirected to
	own       bool   // this server has sent it
	create    bool   // the pod is being created
	plan      bool   // it is too early to grant anything
	// told holds the annotations that the pod is created with, see PlanPod. nodes is the number of nodes.
	told  map[string]string
	nodes int
	// beside holds the other creations where they fill the share that this one belongs to.
	beside []*allowance
}

// admit passes the gates and asks the ledger. A dry run grants nothing.
func (a *Arbiter) admit(ctx context.Context, k *admission, dryRun bool) (Admitted, error) {
	said, err := a.admitOne(ctx, k, dryRun || k.plan)
	if !dryRun {
		said.Times = a.noted(k, err)
	}
	return said, err
}

func (a *Arbiter) admitOne(ctx context.Context, k *admission, trial bool) (Admitted, error) {
	said := Admitted{Pod: k.pod}
	uid := k.pod.Ref.UID
	k.placement = a.o.Question.For(k.pod, k.node)
	k.placement.NoDRA = true
	if err := a.o.Ledger.Pass(&k.placement); err != nil {
		return said, err
	}
	k.placement.Preempt = uid != "" && a.o.Waiting.MayPreempt(uid)
	if trial {
		grant, err := a.tryOut(k)
		said.Annotations = a.tell(k, &grant)
		return said, err
	}
	if !k.own && !k.create && !k.pod.HasClashes() {
		k.to = whereKept
	}
	grant, own, err := a.allow(ctx, k)
	if err != nil || own {
		said.Own = own
		return said, err
	}
	said.Annotations = a.tell(k, &grant)
	if k.from == "" {
		return said, nil
	}
	said.Annotations[v1alpha1.RedirectedFromAnnotation] = k.from
	if k.node != k.placement.Node {
		said.RedirectTo = k.placement.Node
	}
	if grant.Before == ledger.NoAllocation {
		a.redirected(k.pod, k.from, k.placement.Node)
	}
	return said, nil
}

// tell returns the annotations that record on a pod what it is granted.
func (a *Arbiter) tell(k *admission, grant *ledger.Grant) map[string]string {
	if k.create { // the creator of a pod may name only itself, see manifests/base/records.yaml
		grant.Caller = k.pod.Caller
		return a.granted(k.pod, grant) // without the term: another one may decide on the creation
	}
	return a.o.Term.Get().Annotate(a.granted(k.pod, grant))
}

// allow asks the ledger, and remembers what it granted.
func (a *Arbiter) allow(ctx context.Context, k *admission) (grant ledger.Grant, own bool, err error) {
	if ctx.Err() != nil { // nobody waits for the answer
		return grant, false, &gates.Error{
			Outcome: gates.Failed, Pod: k.pod.Ref, Node: k.node, Cause: context.Cause(ctx),
			Create: k.create,
		}
	}
	grant, own, err = a.tryAllow(k)
	if reasonOf(err).OfCapacity() && a.mayGoHome(ctx, k) {
		grant, own, err = a.tryAllow(k)
	}
	var e *gates.Error
	if !errors.As(err, &e) {
		return grant, own, err
	}
	elsewhere := e.Rejection != nil && e.Rejection.Reason == ledger.AllocatedElsewhere
	if elsewhere && a.settleEarly(ctx, k.pod.Ref) {
		return a.tryAllow(k)
	}
	until := time.Now().Add(burstWait)
	for err != nil && time.Now().Before(until) && (a.awaitCreated(ctx, k, until) || a.lookForCreated(ctx, k)) {
		grant, own, err = a.tryAllow(k)
	}
	if len(k.beside) > 0 && errors.As(err, &e) {
		_, e.Soon = a.look(k.beside)
	}
	return grant, own, err
}

func (a *Arbiter) tryAllow(k *admission) (grant ledger.Grant, own bool, err error) {
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	ref := k.pod.Ref
	k.beside = nil
	fail := func(outcome gates.Outcome) (ledger.Grant, bool, error) {
		return ledger.Grant{}, false, &gates.Error{Outcome: outcome, Pod: ref, Node: k.node, BoundTo: k.placement.Node}
	}
	before := a.allowances.of[allowanceKey{pod: ref}]
	if before != nil && !k.own && before.from == k.node { // a repeat of what was redirected
		preempt := k.placement.Preempt
		k.placement = a.o.Question.For(k.pod, before.node)
		k.placement.NoDRA, k.placement.Preempt = true, preempt
	}
	switch {
	case a.allowances.stopped:
		return fail(gates.Stopping)
	case before == nil && a.allowances.crowded(ref.Namespace, a.o.MaxAllowances):
		return ledger.Grant{}, false, a.allowances.busy(ref, k.node)
	case k.create:
		if err := a.beginCreation(k); err != nil {
			return ledger.Grant{}, false, err
		}
	case !k.own:
		if e := a.allowances.tooOften(&allowance{ref: ref, node: k.placement.Node}, before); e != nil {
			return ledger.Grant{}, false, e
		}
	}
	if k.create {
		grant, err = a.gangs.startCreated(k.pod, &k.placement)
	} else {
		grant, err = a.gangs.startBind(k.pod, &k.placement, k.to)
	}
	if err == nil && grant.Before == ledger.Binding && before != nil && !before.covers(&k.placement) {
		grant, err = a.change(k, before)
	}
	switch {
	case err != nil:
		return ledger.Grant{}, false, err
	case grant.Before == ledger.Bound:
		return fail(gates.BoundElsewhere)
	case grant.Before == ledger.Binding && before == nil && k.own:
		return ledger.Grant{}, true, nil
	case grant.Before == ledger.Binding && before == nil:
		return fail(gates.InFlight)
	}
	if k.create && !a.isTold(k, &grant) {
		a.gangs.bindFailed(ref, k.node)
		return fail(gates.NotAnnotated)
	}
	a.o.Waiting.ForbidPreempting(ref.UID)
	if k.placement.Node != k.node {
		k.from = k.node
	} else if before != nil && before.node == k.node {
		k.from = before.from
	}
	a.remember(k, before)
	return grant, false, nil
}

// change makes an allowed Binding count for what is asked now, after the pod's request or the devices that it claims
// have changed. Where the pod is no newer than what was allowed, the Binding is refused: what was allowed is withdrawn
// before long. a.allowances.mu is held.
func (a *Arbiter) change(k *admission, before *allowance) (ledger.Grant, error) {
	if k.pod.ResourceVersion > before.version {
		return a.o.Ledger.ChangeBind(&k.placement)
	}
	return ledger.Grant{}, &gates.Error{Outcome: gates.InFlight, Pod: k.pod.Ref, Node: k.node}
}

// remember records an allowance, or extends it. a.allowances.mu is held.
func (a *Arbiter) remember(k *admission, before *allowance) {
	p := before
	if p == nil || p.node != k.placement.Node {
		p = &allowance{
			ref: k.pod.Ref, node: k.placement.Node, from: k.from, scheduler: k.pod.Scheduler,
			request: k.placement.Request, create: k.create,
			caller: k.pod.Caller,
		}
		a.allowances.add(p)
	}
	if !covers(p.request, k.placement.Request) {
		p.request = k.placement.Request
	}
	p.devices, p.version = k.placement.Devices, max(p.version, k.pod.ResourceVersion)
	if p.create {
		p.allow(createGrace)
		return
	}
	p.allow(grace)
}

// allow records that p is allowed, and has to show up within some time. A repeat gives more time only to what nothing
// can stop once it is under way: others would have their capacity for ever.
func (p *allowance) allow(wait time.Duration) {
	p.allowed = time.Now()
	if p.generation == 0 {
		p.since = p.allowed
	}
	if p.generation == 0 || p.create {
		p.due, p.pause = p.allowed.Add(wait), 0
	}
	p.generation++
}

// covers reports whether what is allowed already is enough for what is asked now.
func (p *allowance) covers(asked *ledger.Placement) bool {
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

// tryOut decides without changing anything, and returns what would be granted.
func (a *Arbiter) tryOut(k *admission) (grant ledger.Grant, err error) {
	p := new(k.placement)
	if k.plan {
		p.Pod.UID = "to be given" // no other pod's of the name
	}
	allocation, allocated := a.o.Ledger.Allocation(p.Pod)
	if allocated && allocation.State == ledger.Bound && allocation.Node == p.Node {
		return grant, &gates.Error{Outcome: gates.BoundElsewhere, Pod: p.Pod, Node: p.Node, BoundTo: p.Node}
	}
	var rejections []ledger.Rejection
	a.o.Ledger.Try(func(t *ledger.Trial) {
		if k.create {
			t.GiveWay(p.Pod, p.Scheduler)
		}
		if fitsAny(t.AppendFit(nil, p, []string{p.Node})) {
			grant = t.Grant(p)
			return
		}
		rejections = t.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, time.Time{})).Rejections
	})
	if len(rejections) == 0 {
		return grant, nil
	}
	return grant, &gates.Error{Outcome: gates.Refused, Pod: p.Pod, Node: p.Node, Rejection: &rejections[0]}
}
