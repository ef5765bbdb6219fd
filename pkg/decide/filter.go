package decide

import (
	"context"
	"errors"
	"slices"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// PodQuery names the pod that a scheduler asks about.
type PodQuery struct {
	Ref ledger.PodRef
	// Version is the resource version of the caller's copy, 0 where it has none.
	Version uint64
	// Nominated is the node that the caller's copy is nominated for, or "".
	Nominated string
	// Copy decodes the caller's copy. It is called only where the API server has no such pod or cannot be read, and
	// only advice is given on it. Its error goes back to the caller as it is.
	Copy func() (*cluster.Pod, error)
}

// Advice is what filter says of the nodes offered to a pod.
type Advice struct {
	Pod *cluster.Pod
	// Refused says why the pod is refused everywhere, by an *UncountableError or a gate's
	// *Error; Verdicts is empty then.
	Refused error
	// Verdicts has an entry for each node offered. The memory is the caller's.
	Verdicts []ledger.Verdict
	// Revision is the ledger's from before the decision.
	Revision uint64
	// Known says that the pod is the API server's: it may be remembered.
	Known bool
	// Nominated is the node that the scheduler's copy of the pod is nominated for, or "".
	Nominated string
	// TryAgain says that the pod was refused for now and is to be woken at once.
	TryAgain bool
	// Limit is the limit that keeps the pod from all nodes, so that no new node would help it. It is Fits where there is
	// none, or the policy does not hold pods back from autoscalers. Members of a gang are refused by node in any case:
	// after an error, kube-scheduler does not go on with the others of a pod group.
	Limit ledger.Reason
	// ComesBack says that the pod was refused all nodes for now only: it has been
	// sent to a node that was not offered, or is woken when its gang may start.
	ComesBack bool
}

// Scratch is memory for verdicts that is used again for every request.
type Scratch struct{ verdicts, second []ledger.Verdict }

// refuseAll says of all nodes that they are refused for one reason.
func (s *Scratch) refuseAll(offered []string, reason ledger.Reason) []ledger.Verdict {
	s.verdicts = s.verdicts[:0]
	for range offered {
		s.verdicts = append(s.verdicts, ledger.Verdict{Reason: reason})
	}
	return s.verdicts
}

// Filter says which of the nodes offered have capacity for a pod. It grants nothing, but may plan the pod for capacity
// that is reserved, and send it there. Its errors, and those of Prioritize and Preempt, include those of MayUse.
func (a *Arbiter) Filter(ctx context.Context, q *PodQuery, offered []string, s *Scratch) (*Advice, error) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	pod, known, err := a.advised(ctx, q)
	var u *UncountableError
	switch {
	case errors.As(err, &u):
		return &Advice{Pod: &cluster.Pod{Ref: q.Ref}, Refused: u}, nil
	case err != nil:
		return nil, err
	}
	advice := &Advice{Pod: pod, Known: known, Nominated: q.Nominated, Revision: a.o.Ledger.Revision()}
	placement := a.o.Question.For(pod, "")
	if advice.Refused = a.o.Ledger.Pass(&placement); gates.IsNotReady(advice.Refused) {
		return nil, advice.Refused
	} else if advice.Refused != nil {
		return advice, nil
	}
	if known && pod.Gang != nil {
		if reason := a.gangs.advise(pod); reason != ledger.Fits {
			advice.Verdicts, advice.ComesBack = s.refuseAll(offered, reason), true
			return advice, nil
		}
	}
	s.verdicts = a.o.Ledger.AppendFit(s.verdicts[:0], &placement, offered)
	a.awaitNominated(ctx, q.Nominated, &placement, offered, s)
	advice.Verdicts = s.verdicts
	if known && a.o.Ledger.HasSlots() {
		a.useSlots(advice, &placement, q.Nominated, offered, s)
	}
	if pod.Gang == nil && !advice.ComesBack && !advice.TryAgain && a.o.Policy.Current().Autoscaling.HoldBackPods {
		advice.Limit = limitOf(s.verdicts)
	}
	return advice, nil
}

// limitOf returns the limit that keeps a pod from all nodes, Fits where there is none.
func limitOf(verdicts []ledger.Verdict) (limit ledger.Reason) {
	for _, v := range verdicts {
		switch {
		case v.Reason == ledger.Fits:
			return ledger.Fits
		case v.Reason.OfLimit():
			limit = v.Reason
		}
	}
	return limit
}

// useSlots brings a pod to a slot that it may use, or to one that it may end.
func (a *Arbiter) useSlots(advice *Advice, placement *ledger.Placement, nominated string, offered []string,
	s *Scratch,
) {
	fits := fitsAny(s.verdicts)
	if fits {
		a.o.Waiting.ForbidPreempting(advice.Pod.Ref.UID)
	}
	advice.ComesBack = a.direct(advice.Pod, placement, nominated, offered, s.verdicts, fits)
	if !fits && !advice.ComesBack && a.gangs.bindsAlone(advice.Pod) {
		advice.TryAgain = a.offerPreemptible(advice.Pod, placement, offered, s)
	}
}

// awaitNominated waits a moment for the node that a pod is nominated for to become free.
// Pods were evicted there for it, and the scheduler has seen them go. If the node were
// refused because our watch is behind, the scheduler would evict other pods elsewhere.
func (a *Arbiter) awaitNominated(ctx context.Context, node string, placement *ledger.Placement, offered []string,
	s *Scratch,
) {
	i := slices.Index(offered, node)
	if i < 0 || !lacks(s.verdicts[i]) || a.o.Waiting.Nominated(placement.Pod.UID, node) {
		return
	}
	changed, unsubscribe := a.o.Ledger.Subscribe()
	defer unsubscribe()
	ctx, cancel := context.WithTimeout(ctx, maxLag)
	defer cancel()
	one := []string{node}
	for {
		s.second = a.o.Ledger.AppendFit(s.second[:0], placement, one)
		if !lacks(s.second[0]) {
			s.verdicts = a.o.Ledger.AppendFit(s.verdicts[:0], placement, offered)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// lacks reports whether a node has too little for a pod.
func lacks(v ledger.Verdict) bool { return v.Reason.OfCapacity() }

// advised finds the pod a scheduler asks about. known is false where there is only the caller's copy. The caller has to
// be allowed to act for the pod's scheduler: advice plans which slot the pod uses, sends it to a node, and may let it
// preempt.
func (a *Arbiter) advised(ctx context.Context, q *PodQuery) (pod *cluster.Pod, known bool, err error) {
	pod, err = a.pods.find(ctx, q.Ref, q.Version)
	known = err == nil
	if err != nil && !errors.As(err, new(*UncountableError)) {
		pod, err = q.Copy()
	}
	if err != nil {
		return nil, false, err
	}
	if a.o.Policy.Current().LimitsCallers() {
		pod = pod.WithCaller(auth.Name(ctx)) // the pod is remembered together with the caller
	}
	return pod, known, a.MayUse(ctx, pod.Scheduler)
}

func fitsAny(verdicts []ledger.Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v ledger.Verdict) bool { return v.Reason == ledger.Fits })
}

// looksBeforePreempting is how many filter calls in a row must find no capacity for
// a pod before preemptible slots are offered, where some node has capacity: it may
// be one the pod cannot be on, or one the scheduler has just not looked at.
const looksBeforePreempting = 3

// offerPreemptible takes a second look for a pod that fits none of the nodes: it may fit once preemptible slots of
// lower priority end. Its bind may end them then. again says that the pod should be tried again before that.
func (a *Arbiter) offerPreemptible(pod *cluster.Pod, placement *ledger.Placement, offered []string,
	s *Scratch,
) (again bool) {
	uid := pod.Ref.UID
	if _, placed := a.o.Ledger.HomeOf(pod.Ref); placed || uid == "" || !slices.ContainsFunc(s.verdicts, lacks) {
		a.o.Waiting.ForbidPreempting(uid)
		return false
	}
	preempting := *placement
	preempting.Preempt = true
	s.second = a.o.Ledger.AppendFit(s.second[:0], &preempting, offered)
	if !fitsAny(s.second) {
		a.o.Waiting.ForbidPreempting(uid)
		return false
	}
	looks := a.o.Waiting.CountLook(pod.Ref)
	if looks < looksBeforePreempting && a.o.Ledger.FitsAnywhere(placement) {
		return true
	}
	a.o.Waiting.AllowPreempting(pod.Ref)
	for i, v := range s.second {
		if v.Reason == ledger.Fits {
			s.verdicts[i] = v
		}
	}
	return false
}

// direct keeps a pod that could use reserved capacity on the node that has it, if the policy puts that above everything
// else, or there is no other. elsewhere says that this node is not among those offered.
func (a *Arbiter) direct(pod *cluster.Pod, placement *ledger.Placement, nominated string, offered []string,
	verdicts []ledger.Verdict, fits bool,
) (elsewhere bool) {
	if pod.Gang != nil && len(placement.Slots) > 0 { // capacity is kept for a directed member on its node
		a.gangs.mu.Lock()
		defer a.gangs.mu.Unlock()
	}
	usable := a.o.Ledger.PreferredSlots(placement)
	if len(usable) == 0 || (fits && a.o.Policy.Current().PrioritizeFor(pod.Scheduler).
		ReservationMatch < extenderv1.MaxExtenderPriority) {
		return false
	}
	node, elsewhere := a.o.Waiting.Direct(pod, nominated, usable, offered)
	if i := slices.Index(offered, node); !elsewhere && (i < 0 || verdicts[i].Reason != ledger.Fits) {
		return false
	}
	for i, name := range offered {
		if verdicts[i].Reason == ledger.Fits && name != node {
			verdicts[i] = ledger.Verdict{Reason: ledger.AllocatedElsewhere}
		}
	}
	return elsewhere
}
