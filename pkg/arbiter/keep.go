package arbiter

import (
	"context"
	"time"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What follows is for a scheduler in the same process, which reserves a pod's
// capacity at the end of its scheduling cycle and binds the pod later.

// Keep keeps capacity for one pod on a node for a while. made says that the pod had
// none before, so that GiveBack may end it. The placement's caller pays. revision is the ledger's of that moment.
// The error is an *Error.
func (a *Arbiter) Keep(p *ledger.Placement, ttl time.Duration) (made bool, revision uint64, err error) {
	_, had := a.o.Ledger.HomeOf(p.Pod)
	result, err := a.o.Ledger.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, a.o.Ledger.Clock.Now().Add(ttl)), false)
	if err != nil {
		return false, result.Revision, err
	}
	if len(result.Rejections) > 0 {
		return false, result.Revision, &Error{Outcome: Refused, Pod: p.Pod, Node: p.Node, Rejection: &result.Rejections[0]}
	}
	return !had, result.Revision, nil
}

// GiveBack ends what Keep has made. Capacity of a pod that is being bound stays.
func (a *Arbiter) GiveBack(p *ledger.Placement) {
	a.o.Ledger.Unreserve([]ledger.Placement{{Pod: p.Pod, Node: p.Node, Scheduler: p.Scheduler}})
}

// BindKnown is Bind for a scheduler in this process that knows the pod at a version: it is not bound by
// an older one.
func (a *Arbiter) BindKnown(ctx context.Context, pod *cluster.Pod, node string) error {
	a.pods.named(pod.Ref.UID, pod.ResourceVersion)
	_, err := a.Bind(identity.Inside(ctx), pod.Ref, node)
	return err
}
