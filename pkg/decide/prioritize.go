package decide

import (
	"context"
	"math/bits"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Prioritize scores nodes for a pod, from 0 to 10, by how much of them is used, and
// prefers the node that has the pod's own reservation, or a slot the pod may use.
func (a *Arbiter) Prioritize(ctx context.Context, q *PodQuery,
	offered []string,
) (_ *cluster.Pod, scores []int64, _ error) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	pod, known, err := a.advised(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	scoring := a.o.Policy.Current().PrioritizeFor(pod.Scheduler)
	factors, columns := factors(&scoring, a.o.Ledger.Table(), pod.Request)
	used := a.o.Ledger.AppendUsage(nil, offered, columns)
	home, preferred := "", false
	asked := pod.Placement("")
	if known && a.o.Ledger.Refuse(&asked) == nil {
		home, preferred = a.home(pod, offered)
	}
	match := min(max(scoring.ReservationMatch, extenderv1.MinExtenderPriority), extenderv1.MaxExtenderPriority)
	scores = make([]int64, len(offered))
	for i, name := range offered {
		own := preferred && home == name
		scores[i] = nodeScore(factors, used[i*len(columns):(i+1)*len(columns)], scoring.Strategy == policy.LeastAllocated,
			own)
		if preferred {
			scores[i] = prefer(scores[i], match, own)
		}
	}
	return pod, scores, nil
}

// home returns the node that has capacity for the pod already: that of its
// allocation, else of the slot it is meant to use.
func (a *Arbiter) home(pod *cluster.Pod, offered []string) (node string, ok bool) {
	if node, ok := a.o.Ledger.HomeOf(pod.Ref); ok {
		return node, true
	}
	placement := a.o.Question.For(pod, "")
	usable := a.o.Ledger.UsableSlots(&placement)
	if len(usable) == 0 {
		return "", false
	}
	return a.o.Waiting.Plan(pod, usable, offered)
}

// factor is one resource that counts in a score.
type factor struct {
	weight  int64
	request int64
}

// factors returns the resources that count for a pod and their columns. As in NodeResourcesFit, an extended or another
// scalar resource only counts for pods that ask for it.
func factors(scoring *policy.Prioritize, table *resources.Table,
	req *resources.Request,
) ([]factor, []resources.Column) {
	list := make([]factor, 0, len(scoring.Resources))
	columns := make([]resources.Column, 0, len(scoring.Resources))
	for _, r := range scoring.Resources {
		column, ok := table.Lookup(r.Name)
		if !ok {
			continue // no node offers it
		}
		f := factor{weight: r.Weight, request: req.Value(column)}
		if f.request > 0 || column <= resources.EphemeralStorage {
			list = append(list, f)
			columns = append(columns, column)
		}
	}
	return list, columns
}

// maxNodeScore is the scale scores are computed in before they are rounded to
// the extender's: that of kube-scheduler's plugins (framework.MaxNodeScore).
const maxNodeScore = 100

// nodeScore is what NodeResourcesFit would give the node under the strategies MostAllocated and LeastAllocated
// (kubernetes pkg/scheduler/framework/plugins/noderesources), rounded to 0..10. There is one difference: a container
// without requests counts nothing, where the plugin assumes 100m of CPU and 200 MB of memory. own says that what the
// pod asks for is in the node's use already.
func nodeScore(factors []factor, usage []ledger.Usage, leastAllocated, own bool) int64 {
	var sum, weights int64
	for i, f := range factors {
		u := usage[i]
		if u.Allocatable <= 0 {
			continue
		}
		requested := u.Used
		if !own {
			requested, _ = resources.Add(requested, f.request)
		}
		requested = min(max(requested, 0), u.Allocatable)
		if leastAllocated {
			requested = u.Allocatable - requested
		}
		sum += f.weight * scaled(requested, u.Allocatable)
		weights += f.weight
	}
	if weights <= 0 {
		return 0
	}
	const step = maxNodeScore / extenderv1.MaxExtenderPriority
	return (sum/weights + step/2) / step
}

// scaled returns part*maxNodeScore/whole for 0 <= part <= whole, without overflow.
func scaled(part, whole int64) int64 {
	high, low := bits.Mul64(uint64(part), maxNodeScore) //nolint:gosec // part is not below 0
	quotient, _ := bits.Div64(high, low, uint64(whole)) //nolint:gosec // as above
	return int64(quotient)                              //nolint:gosec // at most maxNodeScore
}

// prefer makes space in the scale for the pod's home: all scores shrink to what
// match leaves of it, and the home gets match on top.
func prefer(score, match int64, own bool) int64 {
	score = score * (extenderv1.MaxExtenderPriority - match) / extenderv1.MaxExtenderPriority
	if own {
		score += match
	}
	return score
}
