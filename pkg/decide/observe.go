package decide

import (
	"context"
	"errors"
	"time"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// What follows is for a server that only observes; see pkg/http/observe.

// MayBind says why the caller must not bind a pod. It returns the pod with the UID by which it was looked at. A pod
// whose request cannot be counted may be bound, too: nothing is counted before it has its node.
func (a *Arbiter) MayBind(ctx context.Context, pod ledger.PodRef) (ledger.PodRef, error) {
	ref, err := a.mayBind(ctx, pod)
	if !errors.As(err, new(*UncountableError)) {
		return ref, err
	}
	if info, ok := a.o.Pods.Pod(pod.Namespace, pod.Name); ok && isOf(info, pod) {
		return info.Ref, a.MayUse(ctx, info.Scheduler)
	}
	return ref, err // the watch brings it soon
}

// Observe looks whether the ledger would have refused a pod its node, because others had the capacity. If so, it
// remembers the conflict. The ledger has the pod already. path is how the node was asked for, and caller is who asked.
func (a *Arbiter) Observe(pod *cluster.Pod, path, caller string) (conflict *ledger.Rejection) {
	placement := a.o.Question.For(pod, pod.Node)
	placement.Devices = nil                                               // nothing is known of claims
	placement.Pod = ledger.PodRef{Namespace: pod.Ref.Namespace, Name: ""} // what the pod has is not asked about
	var result ledger.Result
	a.o.Ledger.Try(func(t *ledger.Trial) {
		t.Remove(pod.Ref.UID)
		result = t.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Time{}))
	})
	if len(result.Rejections) == 0 {
		return nil
	}
	said := &result.Rejections[0]
	short, ofCapacity := said.Shortage()
	if !ofCapacity {
		return nil
	}
	said.Pod = pod.Ref
	a.o.Metrics.ObserveObservedConflict(pod.Scheduler, short)
	a.refuse(&requeue.Refusal{
		Path: path, Caller: caller, Scheduler: pod.Scheduler, Reason: said.Reason.String(), Rejection: *said, Observed: true,
	})
	return said
}
