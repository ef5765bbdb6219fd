package decide

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// What follows is for a scheduler in the same process, which reserves a pod's
// capacity at the end of its scheduling cycle and binds the pod later.

// MayHave returns why a pod may not be given capacity, wherever there is some; nil if no gate refuses it. A refusal is
// remembered.
func (a *Arbiter) MayHave(p *ledger.Placement) error {
	err := a.o.Ledger.Refuse(p)
	if err != nil {
		a.refusedFor(requeue.Plugin, p, err)
		return err
	}
	a.o.Waiting.Asks(p.Scheduler, p.Caller)
	return nil
}

// KeepAll keeps capacity for pods on their nodes for a while, for all of them or for none. made says of each that it
// had none before, so that Release may end it. The placement's caller pays. revision is the ledger's of that moment.
// The error is an *Error.
func (a *Arbiter) KeepAll(gang []ledger.Placement, ttl time.Duration) (made []bool, revision uint64, err error) {
	result, err := a.o.Ledger.Reserve(ledger.NewPlan(gang, ledger.AllOrNothing, a.o.Ledger.Clock.Now().Add(ttl)), false)
	if err != nil {
		var e *gates.Error
		errors.As(err, &e)
		at := slices.IndexFunc(gang, func(p ledger.Placement) bool { return p.Pod == e.Pod })
		a.refusedFor(requeue.Plugin, &gang[max(at, 0)], err)
		return nil, result.Revision, err
	}
	if len(result.Rejections) > 0 {
		for i := range result.Rejections {
			a.refusedFor(requeue.Plugin, &gang[0], &gates.Error{Outcome: gates.Refused, Rejection: &result.Rejections[i]})
		}
		first := &result.Rejections[0]
		return nil, result.Revision, &gates.Error{Outcome: gates.Refused, Pod: first.Pod, Node: first.Node, Rejection: first}
	}
	made = make([]bool, len(gang))
	for i := range made {
		made[i] = !result.Held[i]
	}
	return made, result.Revision, nil
}

// AdviseGang says why all nodes are to be refused to a pod because its gang cannot start, or Fits. A pod that was
// refused is woken when the gang may.
func (a *Arbiter) AdviseGang(pod *cluster.Pod) ledger.Reason {
	if pod.Gang == nil {
		return ledger.Fits
	}
	reason := a.gangs.advise(pod)
	if reason != ledger.Fits {
		r := &requeue.Refusal{Path: requeue.Plugin, Caller: pod.Caller, Scheduler: pod.Scheduler, Reason: reason.String()}
		r.Rejection.Pod, r.Rejection.Reason = pod.Ref, reason
		a.explainFilter(r, pod, nil)
		a.refuse(r)
	}
	return reason
}

// Release ends what KeepAll has made. Capacity of a pod that is being bound stays.
func (a *Arbiter) Release(p *ledger.Placement) {
	a.ReleaseAll([]ledger.Placement{{Pod: p.Pod, Node: p.Node, Scheduler: p.Scheduler}})
}

// ReleaseAll ends what is kept for pods in memory, if the scheduler of each placement may give it back. The result
// names those that it did not end. What a gang that is starting needs is kept for it at once.
func (a *Arbiter) ReleaseAll(placements []ledger.Placement) ledger.Result {
	return a.gangs.unreserve(placements)
}

// BindKnown is Bind for a scheduler in this process that knows the pod at a version: it is not bound by an older one.
func (a *Arbiter) BindKnown(ctx context.Context, pod *cluster.Pod, node string) error {
	a.pods.named(pod.Ref.UID, pod.ResourceVersion)
	_, err := a.Bind(auth.Inside(ctx), pod.Ref, node)
	return err
}
