package autoscaling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

const (
	// newsEvery is how often the Holder looks for pods that a scheduler has just found unschedulable. Karpenter waits for
	// one second after such news before it looks at pods.
	newsEvery = 400 * time.Millisecond
	// allEvery is how often it looks at all of them: what a limit leaves may have changed.
	allEvery = 5 * time.Second
	// A namespace over its quota may have many pods. No more than podBurst are written before others are looked at.
	podWritesPerSecond, podBurst = 100, 50
	// A scheduler that writes its reason again within contested, which is longer than kube-scheduler's back-off, may do so
	// because of the Holder's write, and is not to be fought: the pod is left to it for a pause, each twice as long as
	// the one before.
	contested                   = 30 * time.Second
	firstPodPause, mostPodPause = 5 * time.Second, time.Minute
)

// Holder keeps autoscalers from making nodes for pods that a limit keeps waiting: it gives their condition PodScheduled
// another reason than Unschedulable, which autoscalers look for. Make it with NewHolder; it can run once.
type Holder struct {
	*writes

	// judged are the resource versions of pods that need nothing, looked is when all pods were looked at, and marks are
	// the pods held back before. Run alone uses them.
	judged map[types.UID]uint64
	looked time.Time
	marks  map[types.UID]mark
}

// mark is what is remembered of a pod that was held back.
type mark struct {
	at    time.Time
	pause time.Duration // how long the pod is left to its scheduler after that; 0 where that has left it alone
}

// NewHolder makes a Holder and starts nothing.
func NewHolder(o Options) *Holder {
	w := newWrites("Pod", o)
	w.limiter = rate.NewLimiter(podWritesPerSecond, podBurst)
	return &Holder{writes: w, judged: map[types.UID]uint64{}, marks: map[types.UID]mark{}}
}

// Run holds pods back until ctx ends.
func (h *Holder) Run(ctx context.Context) error {
	for informer.Pause(ctx, newsEvery) {
		if h.Ledger.Ready() != nil {
			h.looked = time.Time{}
			continue
		}
		for _, pod := range h.look(h.Ledger.Clock.Now()) {
			if h.Ledger.Ready() != nil || h.limiter.Wait(ctx) != nil || !h.write(ctx, pod, h.Ledger.Clock.Now()) {
				break
			}
		}
	}
	return nil
}

// look returns pods that are to have another condition: of those with news, and at times of all. They are no more than
// can be written at once, and some of each namespace.
func (h *Holder) look(now time.Time) (wrong []*cluster.Pod) {
	all := now.Sub(h.looked) >= allEvery
	if !all && !h.holds() {
		return nil
	}
	waits := map[types.UID]bool{}
	for pod := range h.Pods.PendingPods() {
		uid := pod.Ref.UID
		if pod.Scheduling == cluster.NotTried || pod.Deleting {
			continue
		}
		if all {
			waits[uid] = true
		} else if h.judged[uid] == pod.ResourceVersion {
			continue
		}
		if h.isRight(pod, now) {
			h.judged[uid] = pod.ResourceVersion
			continue
		}
		wrong = append(wrong, pod)
	}
	if all {
		h.looked = now
		gone := func(uid types.UID) bool { return !waits[uid] }
		maps.DeleteFunc(h.judged, func(uid types.UID, _ uint64) bool { return gone(uid) })
		maps.DeleteFunc(h.marks, func(uid types.UID, _ mark) bool { return gone(uid) })
		if len(wrong) == 0 {
			h.trouble.Store(nil) // a write that failed before does not matter any more
		}
	}
	slices.SortFunc(wrong, func(a, b *cluster.Pod) int { return cmp.Compare(b.Scheduling, a.Scheduling) })
	wrong = informer.InTurn(wrong, func(pod *cluster.Pod) string { return pod.Ref.Namespace })
	return wrong[:min(len(wrong), podBurst)]
}

// holds reports whether any pods may have to be held back.
func (h *Holder) holds() bool {
	return h.Policy.Current().Autoscaling.HoldBackPods && h.Ledger.Limited()
}

// isRight reports whether a pod's condition is to stay as it is for now.
func (h *Holder) isRight(pod *cluster.Pod, now time.Time) bool {
	if _, placed := h.Ledger.PlaceOf(pod.Ref); placed {
		return true // it is being bound, for which it must not change
	}
	held := pod.Scheduling == cluster.HeldBack
	if _, asks := h.Waiting.AskedBy(pod.Scheduler); held && !asks && h.holds() {
		return true // a server before this one was asked
	}
	if (h.why(pod) != "") == held {
		return true
	}
	m, known := h.marks[pod.Ref.UID]
	return known && !held && now.Sub(m.at) < m.pause
}

// why returns what keeps a pod waiting whatever nodes there are, "" where nothing does. It is not known whether the
// limits hold for a scheduler that never asks the server. A member of a gang is tried again after each write.
func (h *Holder) why(pod *cluster.Pod) string {
	caller, asks := h.Waiting.AskedBy(pod.Scheduler)
	if !asks || !h.holds() || pod.Gang != nil {
		return ""
	}
	asked := h.Question.For(pod.WithCaller(caller), "")
	over := h.Ledger.OverLimit(&asked)
	if over == nil || len(h.Ledger.UsableSlots(&asked)) > 0 { // a limit counts a slot whether it is used or not
		return ""
	}
	return over.Message()
}

// write gives a pod the condition that it is to have by now. It reports false where others need not be tried.
func (h *Holder) write(ctx context.Context, pod *cluster.Pod, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if h.isRight(pod, now) {
		return true
	}
	reason, message := v1.PodReasonUnschedulable, "GlobalReserve: no limit holds the pod back any more"
	if pod.Scheduling == cluster.Unschedulable {
		reason, message = v1alpha1.PodReasonHeldBack, h.why(pod)
	}
	err := h.Patcher.SetUnscheduled(ctx, pod, reason, message)
	if err == nil && reason == v1alpha1.PodReasonHeldBack {
		h.marks[pod.Ref.UID] = h.marks[pod.Ref.UID].next(now)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true // the watch delivers what it is now
	}
	if err != nil && ctx.Err() == context.Canceled {
		return false
	}
	if err != nil {
		h.judged[pod.Ref.UID] = pod.ResourceVersion // it is tried again with all pods
		err = fmt.Errorf("saying whether a node helps a pod: %w", err)
	}
	h.ended(err)
	return err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// next returns the mark of a pod that is held back now, after m.
func (m mark) next(now time.Time) mark {
	if m.at.IsZero() || now.Sub(m.at) > m.pause+contested {
		return mark{at: now}
	}
	return mark{now, min(max(2*m.pause, firstPodPause), mostPodPause)}
}
