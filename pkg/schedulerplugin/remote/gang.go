package remote

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// ReserveAll implements schedulerplugin.Backend.
func (b *backend) ReserveAll(ctx context.Context, gang []schedulerplugin.Member) (made []bool, err error) {
	if err := b.health.ready(); err != nil {
		return nil, err
	}
	request := &reserver.Request{
		SchedulerName: gang[0].Placement.Scheduler, Durable: ptr.To(false), TTLSeconds: int64((b.ttl + time.Second - 1) / time.Second),
	}
	back := &reserver.Request{SchedulerName: request.SchedulerName}
	for i := range gang {
		p := &gang[i].Placement
		made = append(made, !b.heldByAnother(p))
		request.Pods, request.Nodes = append(request.Pods, slim(gang[i].Pod)), append(request.Nodes, p.Node)
		if made[i] {
			back.Pods, back.Nodes = append(back.Pods, named(p)), append(back.Nodes, p.Node)
		}
	}
	answer, err := b.reserving.Reserve(ctx, request)
	if answer != nil {
		b.mirror.Seen(answer.Revision)
		b.health.heard()
	}
	if err == nil {
		return made, nil
	}
	if unknown := (*reserver.UnknownOutcomeError)(nil); errors.As(err, &unknown) {
		b.health.failed(err)
		b.giveBack(ctx, back) // it may have been done
		return nil, &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	}
	return nil, b.explain(err)
}

// Advise implements schedulerplugin.Backend. The mirror knows of no gangs: the server says it when a member is to be
// bound.
func (b *backend) Advise(*cluster.Pod) ledger.Reason { return ledger.Fits }

// named is a pod as far as it has to be named.
func named(p *ledger.Placement) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = p.Pod.Namespace, p.Pod.Name, p.Pod.UID
	return pod
}

// giveBack gives capacity back and waits for the answer: a pod may be reserved on another node next.
func (b *backend) giveBack(ctx context.Context, r *reserver.Request) {
	if len(r.Pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unreserveFor)
	defer cancel()
	answer, err := b.reserving.Unreserve(ctx, r)
	if answer != nil {
		b.mirror.Seen(answer.Revision)
	}
	if err != nil {
		b.log.WithError(err).WithField("pod", r.Pods[0].Namespace+"/"+r.Pods[0].Name).WithField("pods", len(r.Pods)).
			Warn("The capacity of pods could not be given back; it ends at its deadline")
	}
}
