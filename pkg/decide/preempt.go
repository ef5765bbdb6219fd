package decide

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// Preempt says on which nodes the ledger has capacity for a pod once the victims there, named by their UIDs, are gone,
// and those pods of a lower priority that are being bound there: their schedulers alone know of these. A pod with no
// node left is woken when there may be one.
func (a *Arbiter) Preempt(ctx context.Context, q *PodQuery, victims map[string][]types.UID) (pod *cluster.Pod,
	fits map[string]bool, err error,
) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	pod, known, err := a.advised(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	revision, helps := a.o.Ledger.Revision(), false
	fits = make(map[string]bool, len(victims))
	for node, uids := range victims {
		placement := a.o.Question.For(pod, "")
		placement.Node = node
		if err := a.o.Ledger.Pass(&placement); gates.IsNotReady(err) {
			return nil, nil, err
		} else if err != nil {
			continue
		}
		// a pod makes no capacity for itself
		uids = slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool { return uid == pod.Ref.UID })
		a.o.Ledger.Try(func(t *ledger.Trial) {
			t.Remove(uids...)
			t.RemoveBinding(node, pod.Priority)
			fits[node] = t.AppendFit(nil, &placement, []string{node})[0].Reason == ledger.Fits
		})
		helps = helps || fits[node]
	}
	if known && !helps && len(victims) > 0 {
		a.o.Waiting.AwaitEvictions(pod, revision, slices.Collect(maps.Keys(victims)))
	}
	return pod, fits, nil
}
