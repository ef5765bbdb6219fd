package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ask is what the ledger is asked for.
type ask struct {
	placement ledger.Placement
	own       bool // the server's own identity asks
	create    bool // the pod is being created

	// The answer, where it was granted:
	grant    ledger.Grant // what the pod has
	inFlight bool         // it is a bind of the server's own, which looks after it itself
}

type key struct {
	namespace, name string
	uid             types.UID
}

func keyOf(ref ledger.PodRef) key { return key{ref.Namespace, ref.Name, ref.UID} }

// pending is an allowed binding, or an allowed pod, of which it is not known yet
// whether it was carried out. Its claim is Binding.
type pending struct {
	ref       ledger.PodRef
	node      string
	scheduler string
	request   *resources.Request
	devices   *ledger.DeviceRequest
	create    bool

	allowed    time.Time // the last time
	generation int       // how often it was allowed
	due        time.Time // when it is to be settled
	pause      time.Duration
	settling   bool // somebody is settling it
}

// earlyAge is the age from which on a binding may be withdrawn because its
// scheduler has turned to another node: by far most are carried out within
// milliseconds, and no scheduler gives up that fast.
const earlyAge = 500 * time.Millisecond

// claim has the ledger decide, and remembers what it granted.
func (a *Admission) claim(ctx context.Context, k *ask) (ledger.Grant, *refusal) {
	grant, refusal := a.tryClaim(k)
	elsewhere := refusal != nil && refusal.rejection != nil && refusal.rejection.Reason == ledger.ClaimedElsewhere
	if elsewhere && !k.create && a.settleEarly(ctx, k.placement.Pod) {
		return a.tryClaim(k)
	}
	return grant, refusal
}

func (a *Admission) tryClaim(k *ask) (ledger.Grant, *refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ref, node := k.placement.Pod, k.placement.Node
	before := a.pending[keyOf(ref)]
	if before == nil && len(a.pending) >= a.o.MaxPending {
		return ledger.Grant{}, refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"too many bindings are waiting to be carried out; try again")
	}
	if k.create {
		if claim, ok := a.o.Ledger.Claim(ref); ok && claim.Pod.UID != "" {
			return ledger.Grant{}, conflict(fmt.Sprintf("an earlier pod %s has not been seen to be gone yet; try again", ref))
		}
	}
	grant, rejection := a.o.Ledger.StartBind(&k.placement, time.Now())
	if rejection == nil && grant.Before == ledger.Binding && before != nil &&
		(!covers(before.request, k.placement.Request) || !before.devices.Same(k.placement.Devices)) {
		grant, rejection = a.grow(before, &k.placement)
	}
	switch {
	case rejection != nil:
		r := conflict(rejection.Message())
		r.rejection = rejection
		return ledger.Grant{}, r
	case grant.Before == ledger.Bound:
		return ledger.Grant{}, alreadyBound(ref, node)
	case grant.Before == ledger.Binding && before == nil && k.own:
		k.inFlight = true
		return ledger.Grant{}, nil
	case grant.Before == ledger.Binding && before == nil:
		return ledger.Grant{}, conflict(fmt.Sprintf(
			"pod %s is being bound to node %q by somebody else; wait for that bind to end", ref, node))
	}
	a.o.Preemptors.Withdraw(ref.UID)
	a.remember(k, before)
	return grant, nil
}

// grow makes a claim that was allowed for less count for what is asked now: the pod
// has changed (what it asks for, or the devices it claims), or another webhook has
// changed it, or another pod of its name is created at the same time. What was
// allowed may still be carried out, so its claim stays where there is no room for
// more. a.mu is held.
func (a *Admission) grow(before *pending, p *ledger.Placement) (ledger.Grant, *ledger.Rejection) {
	now := time.Now()
	a.o.Ledger.BindFailed(p.Pod, p.Node)
	grant, rejection := a.o.Ledger.StartBind(p, now)
	if rejection == nil {
		return grant, nil
	}
	// Somebody took the room since StartBind found it, a moment ago.
	less := *p
	less.Request, less.Devices = before.request, before.devices
	if _, lost := a.o.Ledger.StartBind(&less, now); lost != nil {
		a.log(before).WithField("reason", lost.Reason.String()).Error(
			"the room of an allowed binding was taken while its pod asked for more; its node is overcommitted if it is carried out")
	}
	return grant, rejection
}

// remember makes a binding pending, or pending once more. a.mu is held.
func (a *Admission) remember(k *ask, before *pending) {
	p := before
	if p == nil || p.node != k.placement.Node {
		p = &pending{
			ref: k.placement.Pod, node: k.placement.Node, scheduler: k.placement.Scheduler,
			request: k.placement.Request, create: k.create,
		}
		a.pending[keyOf(p.ref)] = p
	}
	if !covers(p.request, k.placement.Request) {
		p.request = k.placement.Request
	}
	p.devices = k.placement.Devices
	grace := a.o.Grace
	if p.create {
		grace = a.o.CreateGrace
	}
	p.allowed = time.Now()
	p.due, p.pause = p.allowed.Add(grace), 0
	p.generation++
}

// covers reports whether a claim for one request is enough for another.
func covers(claimed, asked *resources.Request) bool {
	for _, a := range asked.Amounts {
		if a.Value > claimed.Value(a.Column) {
			return false
		}
	}
	return slices.Equal(claimed.Ports, asked.Ports) && slices.Equal(claimed.Unlisted, asked.Unlisted)
}

// tryOut decides without changing anything.
func (a *Admission) tryOut(p *ledger.Placement) *refusal {
	if claim, ok := a.o.Ledger.Claim(p.Pod); ok && claim.State == ledger.Bound && claim.Node == p.Node {
		return alreadyBound(p.Pod, p.Node)
	}
	fits := func(verdicts []ledger.Verdict) bool { return verdicts[0].Reason == ledger.Fits }
	nodes := []string{p.Node}
	if fits(a.o.Ledger.AppendFit(nil, p, nodes)) {
		return nil
	}
	if _, claimed := a.o.Ledger.Claim(p.Pod); !claimed && p.Preempt && fits(a.o.Ledger.AppendPreemptingFit(nil, p, nodes)) {
		return nil
	}
	result := a.o.Ledger.Reserve(ledger.Plan{Placements: []ledger.Placement{*p}, DryRun: true}, time.Now())
	if len(result.Rejections) == 0 {
		return nil // room was freed meanwhile
	}
	r := conflict(result.Rejections[0].Message())
	r.rejection = &result.Rejections[0]
	return r
}
