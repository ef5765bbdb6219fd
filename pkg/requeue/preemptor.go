package requeue

import (
	"context"
	"slices"
	"time"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// preemptor is what is known of a pod that fits a node only if preemptible slots end, as far as filter calls have shown
// that.
type preemptor struct {
	looks   int // filter calls in a row that found no other capacity
	allowed bool
}

// CountLook counts a filter call that found no capacity for a pod but that of preemptible slots, and returns how many
// there have been since one found other capacity.
func (w *Pods) CountLook(pod ledger.PodRef) (looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.record(pod).preemptor
	p.looks++
	return p.looks
}

// AllowPreempting lets the bind of a pod that was looked at end preemptible slots.
func (w *Pods) AllowPreempting(pod ledger.PodRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(pod).preemptor.allowed = true
}

// ForbidPreempting takes back AllowPreempting: the pod fits without, or it is being bound. Its looks count anew.
func (w *Pods) ForbidPreempting(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		r.preemptor = preemptor{}
		w.tidy(r)
	}
}

// MayPreempt reports whether the bind of a pod may end preemptible slots.
func (w *Pods) MayPreempt(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.byUID[pod]
	return r != nil && r.preemptor.allowed
}

// maxEvicts is how many of the nodes are remembered where evictions did not help. kube-scheduler looks at a tenth of
// all nodes, or at 100; where it names more, any node may be one.
const maxEvicts = 128

// sameAttempt is how long after one another filter and preempt refuse a pod in one attempt to schedule it.
const sameAttempt = time.Second

// AwaitEvictions remembers a pod, to be woken, for which evictions did not help on some nodes: something else keeps the
// capacity that it lacks there. That counts beside what filter has refused it for in the same attempt. A pod that a
// gate refuses is left to filter.
func (w *Pods) AwaitEvictions(pod *cluster.Pod, revision uint64, nodes []string) {
	placement := w.Question.WithoutSlots(pod, "")
	if pod.Ref.UID == "" || w.Gates.Refuse(&placement) != nil {
		return
	}
	evicts := []unique.Handle[string]{}
	if len(nodes) <= maxEvicts {
		evicts = handles(nodes)
	}
	a := &attempt{pod: pod, revision: revision, at: time.Now(), sample: len(nodes)}
	if last := w.attemptOf(pod.Ref.UID); last != nil && last.evicts.Load() == nil && a.at.Sub(last.at) < sameAttempt {
		last.evicts.Store(&evicts)
		w.lookLate(last)
		return
	}
	if len(nodes) <= maxOffered {
		a.offered = handles(nodes)
	}
	a.evicts.Store(&evicts)
	a.barred.Store(w.isOver(&placement))
	w.await(a)
}

// evictions lists those of the nodes with freed capacity where evictions did not help a pod. many: they are all of
// them.
func (a *attempt) evictions(freed []string, many bool) (nodes []string) {
	evicts := a.evicts.Load()
	switch {
	case evicts == nil:
		return nil
	case len(*evicts) == 0:
		return slices.Clone(freed)
	}
	for _, node := range *evicts {
		if name := node.Value(); many || slices.Contains(freed, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// makesWay reports whether pods of a lower priority may make way for a pod on one of some nodes.
func (w *Pods) makesWay(placement *ledger.Placement, nodes []string) bool {
	at := *placement
	for _, at.Node = range nodes {
		if w.Ledger.MakesWay(&at) {
			return true
		}
	}
	return false
}

// noNode is what rouse nominates a pod for: no node has that name, so that nothing is kept for it there.
const noNode = "none.globalreserve.io"

// rouse makes kube-scheduler try a pod that its own filters refused everywhere: a change of annotations is no reason
// for that. A nomination that is taken back is one, as it counts like a pod that goes, for all pods of no higher
// priority (kubernetes 1.37 pkg/scheduler/eventhandlers.go, updatePodInSchedulingQueue). A pod that is nominated for a
// node is left alone.
func (w *Pods) rouse(ctx context.Context, pod ledger.PodRef) error {
	now := w.pod(pod)
	if now == nil || now.Nominated != "" && now.Nominated != noNode {
		return nil
	}
	if err := w.Nominator.Nominate(ctx, pod, now.ResourceVersion, noNode); err != nil {
		return err
	}
	if err := w.Nominator.Clear(ctx, pod, noNode); !apierrors.IsInvalid(err) {
		return err
	}
	return nil // the scheduler was faster
}
