package requeue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// wakers is how many pods are woken at once, and patchTimeout bounds each: an API server, or a webhook, that hangs for
// some pods keeps the others waiting no longer.
const (
	wakers       = 16
	patchTimeout = 2 * time.Second
)

// maxLooked is how many freed nodes are checked one by one for a pod. Where more
// were freed at once, it is looked at when its turn comes whether it fits anywhere.
const maxLooked = 64

// look notes which of the freed capacity a refused pod fits.
func (w *Pods) look(a *attempt, f *freed) {
	what := news{sure: f.pods[nameOf(a.pod.Ref)].revision > a.revision}
	if f.held > a.revision {
		what.held = w.fitsHeld(a, f)
	}
	unannounced := what.any()
	claimFreed, silently := f.claimFreed(a)
	unannounced = unannounced || silently
	var memory [maxLooked + 1]string // of the stack: most refusals find nothing
	nodes := memory[:0]
	for node, capacity := range f.nodes {
		if !capacity.newsTo(a) {
			continue
		}
		unannounced = unannounced || capacity.unannounced > a.revision
		if nodes = append(nodes, node); len(nodes) > maxLooked {
			break
		}
	}
	switch letIn, byGate := w.isLetIn(a); {
	case byGate: // nobody knows whether it fits: it may preempt
		what.sure, unannounced = true, true
	case letIn:
		claimFreed, unannounced = true, true
		what.letIn = w.inProcess()
	}
	if what.many = claimFreed || len(nodes) > maxLooked; !what.many && len(nodes) > 0 {
		placement := w.Question.For(a.pod, "")
		what.nodes = w.fitting(&placement, nodes)
	}
	what.evictions = a.evictions(nodes, what.many) // whether they help is asked when it is the pod's turn
	if !what.any() {
		return
	}
	due := time.Now()
	if !unannounced {
		due = due.Add(announcedDelay)
	}
	w.tell(a, what, due)
}

// isLetIn reports whether a pod that was barred is barred by no gate and no limit any more: any node may do then.
// byGate says that a gate barred it.
func (w *Pods) isLetIn(a *attempt) (letIn, byGate bool) {
	asked := &w.loop.asked
	*asked = w.Question.WithoutSlots(a.pod, "")
	gated := w.Gates.Refuse(asked) != nil
	barred := gated || w.isOver(asked)
	wasGated := a.gated.Swap(gated)
	letIn = a.barred.Swap(barred) && !barred
	return letIn, letIn && wasGated
}

// isKeptOut reports whether a gate bars a pod. Then it is looked at again when the policy changes.
func (w *Pods) isKeptOut(a *attempt, placement *ledger.Placement) bool {
	if w.Gates.Refuse(placement) == nil {
		return false
	}
	a.barred.Store(true)
	a.gated.Store(true)
	return w.Gates.Refuse(placement) != nil // the policy may have changed before barred
}

// isOver reports whether a pod could be bound nowhere but with a slot, whatever is free, because of a limit.
func (w *Pods) isOver(placement *ledger.Placement) bool {
	return w.Ledger.Limited() && w.Ledger.OverLimit(placement) != nil
}

// mayTry reports whether a pod that fits nowhere is to be tried: it was let in, and may preempt. Where others have used
// up its limit meanwhile, it is let in again.
func (w *Pods) mayTry(a *attempt, placement *ledger.Placement, what *news) bool {
	if w.isOver(placement) {
		a.barred.Store(true)
		return !w.isOver(placement) // the limit may have changed before barred
	}
	return what.letIn
}

// lookAtSlots notes that a refused pod may use a slot, however long it has been there.
func (w *Pods) lookAtSlots(a *attempt) {
	if len(w.Question.Matcher.Candidates(a.pod)) == 0 {
		return // as most
	}
	if placement := w.Question.For(a.pod, ""); len(w.Ledger.UsableSlots(&placement)) > 0 {
		w.tell(a, news{held: true}, time.Now())
	}
}

// fitting keeps those of the nodes that a pod fits.
func (w *Pods) fitting(placement *ledger.Placement, nodes []string) []string {
	if len(nodes) == 0 {
		return nil
	}
	var memory [maxLooked + 1]ledger.Verdict
	verdicts := w.Ledger.AppendFit(memory[:0], placement, nodes)
	var fitting []string
	for i, v := range verdicts {
		if v.Reason == ledger.Fits {
			fitting = append(fitting, nodes[i])
		}
	}
	return fitting
}

// fitsHeld reports whether the pod could use a slot that is new to it.
func (w *Pods) fitsHeld(a *attempt, f *freed) bool {
	placement := w.Question.For(a.pod, "")
	return slices.ContainsFunc(w.Ledger.UsableSlots(&placement), func(h ledger.UsableSlot) bool {
		return f.nodes[h.Node].held > a.revision
	})
}

// reason is why a pod is woken.
type reason uint8

const (
	noReason      reason = iota
	freeCapacity         // it fits a node that it was offered
	strayCapacity        // it fits a node that it was not offered
	heldCapacity         // it may use a slot
	owed                 // whatever is free
	evictions            // pods of a lower priority may make way for it
)

// why returns the reason there is now to wake a pod for its news.
func (w *Pods) why(a *attempt, what *news) reason {
	placement := w.Question.For(a.pod, "")
	if w.isKeptOut(a, &placement) {
		return noReason
	}
	if what.held && len(w.Ledger.UsableSlots(&placement)) > 0 {
		return heldCapacity
	}
	if what.sure {
		return owed
	}
	var offered, others []string
	for _, node := range what.nodes {
		if a.isOffered(node) {
			offered = append(offered, node)
		} else {
			others = append(others, node)
		}
	}
	if what.many {
		for _, node := range a.offered {
			offered = append(offered, node.Value())
		}
	}
	anywhere := what.many && w.fitsAnywhere(&placement)
	switch {
	case len(w.fitting(&placement, offered)) > 0, anywhere && len(a.offered) == 0:
		return freeCapacity
	case len(what.evictions) > 0 && (w.pausedUntil(a.pod.Ref.UID).After(time.Now()) ||
		w.makesWay(&placement, what.evictions)):
		return evictions
	case anywhere, len(w.fitting(&placement, others)) > 0:
		return strayCapacity
	case w.mayTry(a, &placement, what):
		return owed
	default:
		return noReason
	}
}

// fitsAnywhere reports whether a pod fits some node: that of its allocation, if it has one, else any.
func (w *Pods) fitsAnywhere(placement *ledger.Placement) bool {
	if node, ok := w.Ledger.HomeOf(placement.Pod); ok {
		return w.fits(placement, node)
	}
	return w.Ledger.FitsAnywhere(placement) || len(w.Ledger.UsableSlots(placement)) > 0
}

// dispatch wakes pods with news, the highest priority first.
func (w *Pods) dispatch(ctx context.Context) {
	var waking sync.WaitGroup
	defer waking.Wait()
	slots := make(chan struct{}, wakers)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		a, what, why := w.next(ctx)
		if a == nil || w.wakes.Wait(ctx) != nil {
			return // stopping
		}
		if w.inProcess() {
			w.wake(ctx, a, what, why) // in order; it takes no time
			<-slots
			continue
		}
		waking.Go(func() {
			defer func() { <-slots }()
			w.wake(ctx, a, what, why)
		})
	}
}

// next waits for a pod that there is a reason to wake. It returns nil when ctx ends.
func (w *Pods) next(ctx context.Context) (*attempt, news, reason) {
	for ctx.Err() == nil {
		w.looking.Lock()
		a, what, due := w.take()
		w.looking.Unlock()
		if a == nil {
			var timeout <-chan time.Time
			if !due.IsZero() {
				timeout = time.After(time.Until(due))
			}
			select {
			case <-ctx.Done():
			case <-w.changed:
			case <-timeout:
			}
			continue
		}
		switch why := w.why(a, &what); why {
		case noReason:
			w.wait(a, news{}, time.Time{})
		case strayCapacity, evictions:
			if until := w.pausedUntil(a.pod.Ref.UID); until.After(time.Now()) {
				w.wait(a, what, until)
				continue
			}
			return a, what, why
		default:
			return a, what, why
		}
	}
	return nil, news{}, noReason
}

// wake wakes one pod, by sending it to a node if that is what it waited for, else by a patch.
func (w *Pods) wake(ctx context.Context, a *attempt, what news, why reason) {
	if !w.isLast(a) {
		return // settled, or refused again meanwhile
	}
	pod := a.pod
	log := w.Log.WithFields(logrus.Fields{"pod": pod.Ref.String(), "uid": pod.Ref.UID, "priority": pod.Priority})
	rouse := a.evicts.Load() != nil // its scheduler's own filters may have refused it
	if !w.inProcess() && !rouse && w.send(a, why) {
		w.woken(a, why == strayCapacity)
		w.countWakeup(pod.Ref.UID)
		log.WithField("reserved", why == heldCapacity).Info("sent a pending pod to a node that has capacity for it")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	switch err := w.patch(ctx, pod.Ref, rouse); {
	case err == nil:
		w.woken(a, rouse || why == strayCapacity)
		if !w.inProcess() {
			w.countWakeup(pod.Ref.UID)
		}
		log.Info("woke a pending pod: capacity was freed for it")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && w.pod(pod.Ref) == nil: // not one with another writer
		w.woken(a, false)
	case apiwrite.Of("pods", err) == apiwrite.Refused:
		w.woken(a, false)
		log.WithError(err).Warn("the API server does not let a pending pod be woken; it waits for its scheduler's own retry")
	default:
		w.retry(a, what)
		log.WithError(err).Warn("could not wake a pending pod; will try again")
	}
}

// countWakeup counts that a pod was woken up by a write. If it is refused again, that was in vain.
func (w *Pods) countWakeup(pod types.UID) {
	w.Metrics.ObserveWakeup()
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		r.woken = true
	}
}

// patch wakes a pod by a patch.
func (w *Pods) patch(ctx context.Context, pod ledger.PodRef, rouse bool) error {
	if rouse {
		return w.rouse(ctx, pod)
	}
	// A value that is there already would be no change, and wake nobody.
	value := strconv.FormatUint(w.Ledger.Revision(), 10) + "-" + strconv.FormatUint(w.patches.Add(1), 10)
	return w.Patcher.Annotate(ctx, pod, map[string]string{v1alpha1.RetryAnnotation: value})
}

// send wakes a pod by a nomination for the node that it is woken for. It reports false where the pod has to be woken by
// a patch.
func (w *Pods) send(a *attempt, why reason) bool {
	switch why {
	case heldCapacity:
		return w.planNow(a.pod)
	case freeCapacity, strayCapacity:
		return w.nominateNow(a.pod, a.sample)
	default:
		return false
	}
}
