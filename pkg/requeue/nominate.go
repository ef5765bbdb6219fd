package requeue

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The loops that write. One write takes at most writeTimeout, and after maxFailures a nomination is given up.
const (
	writers      = 4
	writeTimeout = 5 * time.Second
	maxFailures  = 5
	retryFirst   = 200 * time.Millisecond
	retryMost    = 5 * time.Second
)

// Nominator writes status.nominatedNodeName of pods. Both writes must apply only to the pod with the given UID.
type Nominator interface {
	// Nominate applies only to a version of the pod, or to any where that is 0.
	Nominate(ctx context.Context, pod ledger.PodRef, version uint64, node string) error
	// Clear takes the nomination away if it is still this node.
	Clear(ctx context.Context, pod ledger.PodRef, node string) error
}

// steer writes nominations until ctx ends.
func (w *Pods) steer(ctx context.Context) {
	changes, unsubscribe := w.Ledger.Subscribe()
	defer unsubscribe()
	queue := informer.NewTurnsQueue("nominations", retryFirst, retryMost, namespaceOf)
	w.begin(queue)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() { w.write(ctx, queue) })
	}
	w.watch(ctx, changes)
	queue.ShutDown()
	writing.Wait()
}

func namespaceOf(pod ledger.PodRef) string { return pod.Namespace }

// begin lets plans queue writes from now on, and queues what they wanted before.
func (w *Pods) begin(queue workqueue.TypedRateLimitingInterface[ledger.PodRef]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = queue
	for p := range w.plans {
		if p.wanted != "" {
			queue.AddAfter(p.pod.Ref, settle)
		}
	}
}

// writeLater queues the write of what the plan of a pod wants, after a while. mu is held.
func (w *Pods) writeLater(pod ledger.PodRef, after time.Duration) {
	if w.writes != nil {
		w.writes.AddAfter(pod, after)
	}
}

// watch looks at the nominations when the ledger has changed.
func (w *Pods) watch(ctx context.Context, changes <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
		if !informer.Pause(ctx, sweepDelay) {
			return
		}
		w.sweep()
	}
}

// sweep finds the nominated pods that can use their slots no more.
func (w *Pods) sweep() {
	w.mu.Lock()
	var nominated []*plan
	for p := range w.plans {
		if p.wanted != searching && (p.nominated != "" || p.wanted != "") {
			nominated = append(nominated, p)
		}
	}
	slices.SortFunc(nominated, byAge)
	w.mu.Unlock()
	for _, p := range nominated {
		if w.stillUsable(p) {
			continue
		}
		w.mu.Lock()
		if w.plan(p.pod.Ref.UID) == p && p.wanted != clearing {
			p.wanted = clearing
			if p.isFree() {
				p.wanted = searching
			}
			w.writeLater(p.pod.Ref, 0)
		}
		w.mu.Unlock()
	}
}

// What a plan wants that is no node's name: clearing, that its nomination goes; searching, that a
// node with free capacity is found for it.
const (
	clearing  = "-"
	searching = "?"
)

// stillUsable reports whether a pod has capacity of its own, and so is being bound, or could
// still be bound to what it was nominated for.
func (w *Pods) stillUsable(p *plan) bool {
	w.mu.Lock()
	pod, slot := p.pod, p.slot
	w.mu.Unlock()
	if _, placed := w.Ledger.HomeOf(pod.Ref); placed {
		return true
	}
	placement := w.Question.For(pod, "")
	if slot.Ref == (ledger.SlotRef{}) {
		return w.fits(&placement, slot.Node)
	}
	placement.Slots = []ledger.SlotRef{slot.Ref}
	return slices.ContainsFunc(w.Ledger.UsableSlots(&placement),
		func(h ledger.UsableSlot) bool { return h.Ref == slot.Ref })
}

// write carries out what plans want.
func (w *Pods) write(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ledger.PodRef]) {
	for {
		pod, shutdown := queue.Get()
		if shutdown {
			return
		}
		if w.carryOut(ctx, pod.UID, queue.NumRequeues(pod) >= maxFailures) {
			queue.Forget(pod)
		} else {
			queue.AddRateLimited(pod)
		}
		queue.Done(pod)
	}
}

// carryOut writes for one pod; last says that it is tried for the last time. It
// reports false where it should be tried again.
func (w *Pods) carryOut(ctx context.Context, uid types.UID, last bool) bool {
	w.mu.Lock()
	p := w.plan(uid)
	if p == nil || p.wanted == "" {
		w.mu.Unlock()
		return true
	}
	pod, wanted, nominated := p.pod, p.wanted, p.nominated
	w.mu.Unlock()
	if state, _ := w.Ledger.Standing(pod.Ref); state != ledger.NoAllocation && wanted != clearing {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.plan(uid) == p {
			w.drop(p) // it is being bound, for which it must not change
		}
		return true
	}
	if wanted == searching {
		if w.searches.Wait(ctx) != nil {
			return true // stopping
		}
		var wake bool
		if wanted, wake = w.resolve(pod); wake {
			w.Wake(pod)
		}
		if wanted == "" {
			return true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var err error
	switch {
	case wanted != clearing:
		err = w.Nominator.Nominate(ctx, pod.Ref, 0, wanted)
	case nominated != "":
		err = w.Nominator.Clear(ctx, pod.Ref, nominated)
	}
	return w.written(uid, wanted, err, last)
}

// written takes note of a write and reports whether it need not be tried again.
func (w *Pods) written(uid types.UID, wanted string, err error, last bool) bool {
	w.mu.Lock()
	p := w.plan(uid)
	if p == nil {
		w.mu.Unlock()
		return true
	}
	pod, again := p.pod, p.again // of this moment: both change under the lock
	log := w.Log.WithFields(map[string]any{"pod": pod.Ref.String(), "uid": uid, "node": p.slot.Node})
	if !p.isFree() {
		log = log.WithField("reservation", p.slot.Ref.String())
	}
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	final := apierrors.IsForbidden(err) || last
	switch {
	case wanted == clearing && p.wanted != clearing: // it is for another node meanwhile, which the next write sets
		if err == nil || gone {
			p.nominated = ""
		}
		w.mu.Unlock()
	case wanted == clearing && (err == nil || gone || final):
		w.drop(p)
		w.mu.Unlock()
		if p.nominated == "" {
			w.Wake(pod) // nothing was written that would wake it
		}
	case err == nil:
		p.nominated = wanted
		if p.wanted == wanted {
			p.wanted = ""
		}
		w.mu.Unlock()
		if again {
			w.Wake(pod)
		}
		log.Info("a pod is steered to a node that has capacity for it")
		return true
	case gone:
		w.drop(p)
		w.mu.Unlock()
	case final:
		p.givenUp, p.wanted = true, ""
		w.mu.Unlock()
		log.WithError(err).
			Warn("a pod could not be steered to the node that has capacity for it; it may be scheduled elsewhere")
		w.Wake(pod)
	default:
		w.mu.Unlock()
		return false
	}
	return true
}
