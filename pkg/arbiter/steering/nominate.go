package steering

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The loops that write. One write takes at most writeTimeout, and after
// maxFailures a nomination is given up.
const (
	writers      = 4
	writeTimeout = 5 * time.Second
	maxFailures  = 5
	retryFirst   = 200 * time.Millisecond
	retryMost    = 5 * time.Second
)

// Run writes nominations until ctx ends.
func (s *Steering) Run(ctx context.Context) error {
	wake, unsubscribe := s.Ledger.Subscribe()
	defer unsubscribe()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryFirst, retryMost))
	s.begin(queue)
	var done sync.WaitGroup
	for range writers {
		done.Go(func() { s.write(ctx, queue) })
	}
	s.watch(ctx, wake)
	queue.ShutDown()
	done.Wait()
	return nil
}

// begin has written from now on what plans want, and what they wanted before.
func (s *Steering) begin(queue workqueue.TypedRateLimitingInterface[types.UID]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	for uid, p := range s.plans {
		if p.wanted != "" {
			queue.AddAfter(uid, settle)
		}
	}
}

// enqueue has written after a while what the plan of a pod wants. s.mu is held.
func (s *Steering) enqueue(pod types.UID, after time.Duration) {
	if s.queue != nil {
		s.queue.AddAfter(pod, after)
	}
}

// watch looks at the nominations when the ledger has changed.
func (s *Steering) watch(ctx context.Context, wake <-chan struct{}) {
	delay := time.NewTimer(0)
	defer delay.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		delay.Reset(sweepDelay)
		select {
		case <-ctx.Done():
			return
		case <-delay.C:
		}
		s.sweep()
	}
}

// sweep finds the nominated pods that can use their slots no more.
func (s *Steering) sweep() {
	s.mu.Lock()
	var nominated []*plan
	for _, p := range s.plans {
		if p.wanted != searching && (p.nominated != "" || p.wanted != "") {
			nominated = append(nominated, p)
		}
	}
	slices.SortFunc(nominated, byAge)
	s.mu.Unlock()
	for _, p := range nominated {
		if s.stillUsable(p) {
			continue
		}
		s.mu.Lock()
		if s.plans[p.pod.Ref.UID] == p && p.wanted != clearing {
			p.wanted = clearing
			if p.isFree() {
				p.wanted = searching
			}
			s.enqueue(p.pod.Ref.UID, 0)
		}
		s.mu.Unlock()
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
func (s *Steering) stillUsable(p *plan) bool {
	s.mu.Lock()
	pod, slot := p.pod, p.slot
	s.mu.Unlock()
	if _, placed := s.Ledger.HomeOf(pod.Ref); placed {
		return true
	}
	placement := s.Question.For(pod, "")
	if slot.Ref == (ledger.SlotRef{}) {
		return s.fits(&placement, slot.Node)
	}
	placement.Slots = []ledger.SlotRef{slot.Ref}
	return slices.ContainsFunc(s.Ledger.UsableSlots(&placement), func(h ledger.UsableSlot) bool { return h.Ref == slot.Ref })
}

// write carries out what plans want.
func (s *Steering) write(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.UID]) {
	for {
		uid, shutdown := queue.Get()
		if shutdown {
			return
		}
		if s.carryOut(ctx, uid, queue.NumRequeues(uid) >= maxFailures) {
			queue.Forget(uid)
		} else {
			queue.AddRateLimited(uid)
		}
		queue.Done(uid)
	}
}

// carryOut writes for one pod; last says that it is tried for the last time. It
// reports false where it should be tried again.
func (s *Steering) carryOut(ctx context.Context, uid types.UID, last bool) bool {
	s.mu.Lock()
	p := s.plans[uid]
	if p == nil || p.wanted == "" {
		s.mu.Unlock()
		return true
	}
	pod, wanted, nominated := p.pod, p.wanted, p.nominated
	s.mu.Unlock()
	if state, _ := s.Ledger.Standing(pod.Ref); state != ledger.NoAllocation && wanted != clearing {
		s.Settled(uid) // it is being bound, for which it must not change
		return true
	}
	if wanted == searching {
		if s.limiter.Wait(ctx) != nil {
			return true // stopping
		}
		if wanted = s.resolve(pod); wanted == "" {
			return true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var err error
	switch {
	case wanted != clearing:
		err = s.Nominator.Nominate(ctx, pod.Ref, wanted)
	case nominated != "":
		err = s.Nominator.Clear(ctx, pod.Ref, nominated)
	}
	return s.written(uid, wanted, err, last)
}

// written takes note of a write and reports whether it need not be tried again.
func (s *Steering) written(uid types.UID, wanted string, err error, last bool) bool {
	s.mu.Lock()
	p := s.plans[uid]
	if p == nil {
		s.mu.Unlock()
		return true
	}
	pod, again := p.pod, p.again // of this moment: both change under the lock
	log := s.Log.WithFields(map[string]any{"pod": pod.Ref.String(), "uid": uid, "node": p.slot.Node})
	if !p.isFree() {
		log = log.WithField("reservation", p.slot.Ref.String())
	}
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	final := apierrors.IsForbidden(err) || last
	switch {
	case wanted == clearing && p.wanted != clearing: // it is for another node meanwhile, of which the next write tells
		if err == nil || gone {
			p.nominated = ""
		}
		s.mu.Unlock()
	case wanted == clearing && (err == nil || gone || final):
		s.drop(p)
		s.mu.Unlock()
		if p.nominated == "" {
			s.OnGivenUp(pod) // nothing was written that would wake it
		}
	case err == nil:
		p.nominated = wanted
		if p.wanted == wanted {
			p.wanted = ""
		}
		s.mu.Unlock()
		if again {
			s.OnGivenUp(pod)
		}
		log.Info("a pod is steered to a node that has capacity for it")
		return true
	case gone:
		s.drop(p)
		s.mu.Unlock()
	case final:
		p.givenUp, p.wanted = true, ""
		s.mu.Unlock()
		log.WithError(err).Warn("a pod could not be steered to the node that has capacity for it; it may be scheduled elsewhere")
		s.OnGivenUp(pod)
	default:
		s.mu.Unlock()
		return false
	}
	return true
}
