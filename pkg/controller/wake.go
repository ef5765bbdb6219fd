package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// wakers is how many pods are woken at once, and patchTimeout bounds each: an API
// server, or a webhook, that hangs for some pods keeps the others waiting no
// longer.
const (
	wakers       = 16
	patchTimeout = 2 * time.Second
)

// maxLooked is how many freed nodes are checked one by one for a pod. Where more
// were freed at once, it is looked at when its turn comes whether it fits anywhere.
const maxLooked = 64

// look notes which of the freed capacity a refused pod fits.
func (w *Wakeups) look(r *refusal, f *freed) {
	what := news{sure: f.pods[nameOf(r.pod.Ref)].revision > r.revision}
	if f.held > r.revision {
		what.held = w.fitsHeld(r, f)
	}
	silent := what.any()
	claimFreed, silently := f.claimFreed(r)
	silent = silent || silently
	var memory [maxLooked + 1]string // of the stack: most refusals find nothing
	nodes := memory[:0]
	for node, capacity := range f.nodes {
		if !capacity.newsTo(r) {
			continue
		}
		silent = silent || capacity.silent > r.revision
		if nodes = append(nodes, node); len(nodes) > maxLooked {
			break
		}
	}
	if w.withinLimit(r) {
		claimFreed, silent = true, true
	}
	if what.many = claimFreed || len(nodes) > maxLooked; !what.many && len(nodes) > 0 {
		placement := w.Question.For(r.pod, "")
		what.nodes = w.fitting(&placement, nodes)
	}
	if !what.any() {
		return
	}
	due := time.Now()
	if !silent {
		due = due.Add(announcedDelay)
	}
	w.refused.tell(r, what, due)
}

// withinLimit reports whether a pod that was over a limit is not any more: any node may do then.
func (w *Wakeups) withinLimit(r *refusal) bool {
	if !r.overLimit && !w.Ledger.Limited() {
		return false
	}
	placement := r.pod.Placement("")
	was := r.overLimit
	r.overLimit = w.Ledger.OverLimit(&placement) != nil
	return was && !r.overLimit
}

// lookAtSlots notes that a refused pod may use a slot, however long it has been there.
func (w *Wakeups) lookAtSlots(r *refusal) {
	if len(w.Question.Matcher.Candidates(r.pod)) == 0 {
		return // as most
	}
	if placement := w.Question.For(r.pod, ""); len(w.Ledger.UsableSlots(&placement)) > 0 {
		w.refused.tell(r, news{held: true}, time.Now())
	}
}

// fitting keeps those of the nodes that a pod fits.
func (w *Wakeups) fitting(placement *ledger.Placement, nodes []string) []string {
	if len(nodes) == 0 {
		return nil
	}
	var memory [maxLooked + 1]ledger.Verdict
	verdicts := w.Ledger.AppendFit(memory[:0], placement, nodes)
	var fitting []string
	for i, v := range verdicts {
		if v.Reason == ledger.Fits {
			fitting = append(fitting, nodes[i]) //nolint:gosec // there is one verdict for each node
		}
	}
	return fitting
}

// fitsHeld reports whether the pod could use a slot that is new to it.
func (w *Wakeups) fitsHeld(r *refusal, f *freed) bool {
	placement := w.Question.For(r.pod, "")
	return slices.ContainsFunc(w.Ledger.UsableSlots(&placement), func(h ledger.UsableSlot) bool {
		return f.nodes[h.Node].held > r.revision
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
)

// why returns the reason there is now to wake a pod for its news.
func (w *Wakeups) why(r *refusal, what *news) reason {
	placement := w.Question.For(r.pod, "")
	if what.held && len(w.Ledger.UsableSlots(&placement)) > 0 {
		return heldCapacity
	}
	if what.sure {
		return owed
	}
	var offered, others []string
	for _, node := range what.nodes {
		if r.isOffered(node) {
			offered = append(offered, node)
		} else {
			others = append(others, node)
		}
	}
	if what.many {
		for _, node := range r.offered {
			offered = append(offered, node.Value())
		}
	}
	anywhere := what.many && w.fitsAnywhere(&placement)
	switch {
	case len(w.fitting(&placement, offered)) > 0, anywhere && len(r.offered) == 0:
		return freeCapacity
	case anywhere, len(w.fitting(&placement, others)) > 0:
		return strayCapacity
	default:
		return noReason
	}
}

// fitsAnywhere reports whether a pod fits some node: that of its allocation, if it has
// one, else any.
func (w *Wakeups) fitsAnywhere(placement *ledger.Placement) bool {
	if node, ok := w.Ledger.HomeOf(placement.Pod); ok {
		return len(w.fitting(placement, []string{node})) > 0
	}
	return w.Ledger.FitsAnywhere(placement) || len(w.Ledger.UsableSlots(placement)) > 0
}

// dispatch has pods with news woken, the highest priority first.
func (w *Wakeups) dispatch(ctx context.Context) {
	slots := make(chan struct{}, wakers)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		r, what, why := w.next(ctx)
		if r == nil || w.limiter.Wait(ctx) != nil {
			return // stopping
		}
		if w.InProcess {
			w.wake(ctx, r, what, why) // in order; it takes no time
			<-slots
			continue
		}
		w.done.Go(func() {
			defer func() { <-slots }()
			w.wake(ctx, r, what, why)
		})
	}
}

// next waits for a pod that there is a reason to wake. It returns nil when ctx
// ends.
func (w *Wakeups) next(ctx context.Context) (*refusal, news, reason) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		w.looking.Lock()
		r, what, due := w.refused.take(time.Now())
		w.looking.Unlock()
		if r == nil {
			var timeout <-chan time.Time
			if !due.IsZero() {
				timer.Reset(time.Until(due))
				timeout = timer.C
			}
			select {
			case <-ctx.Done():
			case <-w.refused.changed:
			case <-timeout:
			}
			continue
		}
		switch why := w.why(r, &what); why {
		case noReason:
			w.refused.wait(r, news{}, time.Time{})
		case strayCapacity:
			if until := w.refused.pausedUntil(r.pod.Ref.UID); until.After(time.Now()) {
				w.refused.wait(r, what, until)
				continue
			}
			return r, what, why
		default:
			return r, what, why
		}
	}
	return nil, news{}, noReason
}

// wake wakes one pod, by sending it to a node if that is what it waited for, else
// by a patch.
func (w *Wakeups) wake(ctx context.Context, r *refusal, what news, why reason) {
	if !w.refused.current(r) {
		return // settled, or refused again meanwhile
	}
	pod := r.pod
	log := w.Log.WithFields(logrus.Fields{"pod": pod.Ref.String(), "uid": pod.Ref.UID, "priority": pod.Priority})
	if why == heldCapacity && w.Steer(pod) {
		w.refused.woken(r, false, time.Now())
		w.OnWakeup()
		log.Info("sent a pending pod to capacity that is held for it")
		return
	}
	if (why == freeCapacity || why == strayCapacity) && w.NominateNow(pod, r.sample) {
		w.refused.woken(r, why == strayCapacity, time.Now())
		w.OnWakeup()
		log.Info("sent a pending pod to free capacity")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	// A value that is there already would be no change, and wake nobody.
	value := strconv.FormatUint(w.Ledger.Revision(), 10) + "-" + strconv.FormatUint(w.patches.Add(1), 10)
	err := w.Patcher.Annotate(ctx, pod.Ref, v1alpha1.RetryAnnotation, value)
	switch {
	case err == nil:
		w.refused.woken(r, why == strayCapacity, time.Now())
		w.OnWakeup()
		log.Info("woke a pending pod: capacity was freed for it")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && !w.exists(pod.Ref):
		w.refused.woken(r, false, time.Now())
	case final(err):
		w.refused.woken(r, false, time.Now())
		log.WithError(err).Warn("the API server does not let a pending pod be woken; it waits for its scheduler's own retry")
	default:
		w.refused.retry(r, what, time.Now())
		log.WithError(err).Warn("could not wake a pending pod; will try again")
	}
}

// exists reports whether the pod is there as far as is known: a conflict is then
// one with another writer, not with another pod of its name.
func (w *Wakeups) exists(pod ledger.PodRef) bool {
	known, ok := w.Pods.Pod(pod.Namespace, pod.Name)
	return ok && known.Ref.UID == pod.UID
}

// final reports whether the API server has understood a write and will refuse it
// again.
func final(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
