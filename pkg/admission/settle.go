package admission

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// tick is how often pending bindings are looked through.
	tick = 250 * time.Millisecond
	// requestTimeout bounds one request to the API server.
	requestTimeout = 3 * time.Second
	// settlers bounds how many bindings are settled at the same time.
	settlers = 8
	// The pauses between tries to settle one binding grow from the first to the
	// longest.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	// selfPause is the pause between tries to find out who the server is.
	selfPause = 5 * time.Second
)

// Start runs the background loop until Stop.
func (a *Admission) Start() { a.done.Go(a.run) }

// Stop ends the background loop and settles what is pending, until ctx ends: what
// was allowed and has not been carried out by then will not be. It is to be called
// when no request can come any more.
func (a *Admission) Stop(ctx context.Context) {
	a.cancel()
	a.done.Wait()
	a.settleAll(ctx, func(p *pending) bool { return !p.create })
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := len(a.pending); left > 0 {
		a.o.Log.WithField("count", left).Warn("stopped while bindings or pods that were allowed may still be carried out; the next server learns of them when they are")
	}
}

func (a *Admission) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var asked time.Time
	known := false
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-ticker.C:
		}
		if !known && time.Since(asked) >= selfPause {
			known, asked = a.askSelf(), time.Now()
		}
		a.settleAll(a.ctx, func(p *pending) bool { return !time.Now().Before(p.due) })
	}
}

// askSelf finds out who the server is to the API server. It reports false where
// it should be tried again.
func (a *Admission) askSelf() (known bool) {
	ctx, cancel := context.WithTimeout(a.ctx, requestTimeout)
	defer cancel()
	name, err := a.o.Client.Self(ctx)
	if err != nil {
		if a.ctx.Err() == nil {
			a.o.Log.WithError(err).Warn("cannot find out the server's own user name: until then its own bindings must be kept from the webhook by a matchCondition")
		}
		return apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.self = name
	return true
}

func (a *Admission) isSelf(user string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self != "" && a.self == user
}

// settleAll forgets the pending bindings that the informers have told of, and
// settles those of the others that are chosen.
func (a *Admission) settleAll(ctx context.Context, chosen func(*pending) bool) {
	group := errgroup.Group{}
	group.SetLimit(settlers)
	for _, p := range a.take(chosen) {
		group.Go(func() error {
			a.settle(ctx, p)
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// take forgets what is over and returns the chosen rest, marked as being settled.
func (a *Admission) take(chosen func(*pending) bool) []*pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	var taken []*pending
	for k, p := range a.pending {
		switch {
		case p.settling:
		case a.over(p):
			delete(a.pending, k)
		case chosen(p):
			p.settling = true
			taken = append(taken, p)
		}
	}
	return taken
}

// over reports whether the claim tells what became of a binding: it was carried
// out, or its pod is gone or elsewhere. a.mu is held.
func (a *Admission) over(p *pending) bool {
	claim, ok := a.o.Ledger.Claim(p.ref)
	return !ok || claim.Node != p.node || claim.State != ledger.Binding
}

// settleEarly settles the pending binding of a pod whose scheduler asks for
// another node, and reports whether that is out of the way.
func (a *Admission) settleEarly(ctx context.Context, ref ledger.PodRef) bool {
	a.mu.Lock()
	p := a.pending[keyOf(ref)]
	if p == nil || p.settling || time.Since(p.allowed) < earlyAge {
		a.mu.Unlock()
		return false
	}
	p.settling = true
	a.mu.Unlock()
	return a.settle(ctx, p)
}

// fate is what became of an allowed binding.
type fate uint8

const (
	unknown   fate = iota
	happened       // the pod is on the node
	withdrawn      // it did not happen, and never will
)

// settle finds out what became of a binding, and sees to it that it never happens
// where it has not. It reports whether that succeeded. p.settling is set when it
// is called.
func (a *Admission) settle(ctx context.Context, p *pending) bool {
	a.mu.Lock()
	generation, abandoned := p.generation, time.Since(p.allowed) >= a.o.CreateGrace
	a.mu.Unlock()
	ref, what, err := a.examine(ctx, p, abandoned)
	a.mu.Lock()
	defer a.mu.Unlock()
	p.settling = false
	switch {
	case what == happened:
		a.o.Ledger.Confirm(ref, p.node)
		a.forget(p)
		return true
	case what == withdrawn && p.generation != generation:
		return false // allowed once more meanwhile, and that may happen
	case what == withdrawn:
		a.giveBack(p)
		return true
	default:
		p.pause = min(max(2*p.pause, firstPause), longestPause)
		p.due = time.Now().Add(p.pause)
		a.log(p).WithError(err).Warn("it is not known whether an allowed binding was carried out; its room stays reserved until it is")
		return false
	}
}

// giveBack ends the claim of a binding that did not happen. a.mu is held.
func (a *Admission) giveBack(p *pending) {
	a.forget(p)
	if a.o.Ledger.BindFailed(p.ref, p.node) {
		a.o.Metrics.ObserveDecision(verb, p.scheduler, resultWithdrawn)
		a.log(p).WithField("result", resultWithdrawn).Info("an allowed binding did not happen; its room was given back")
	}
}

// forget makes a binding not pending any more. Its pod may have another one that
// is, for another node. a.mu is held.
func (a *Admission) forget(p *pending) {
	if a.pending[keyOf(p.ref)] == p {
		delete(a.pending, keyOf(p.ref))
	}
}

// examine reads the pod and, where it is unbound, makes it so that no binding
// allowed before can be carried out. It returns the pod as it is, with its UID. Where the
// pod cannot be patched, because another webhook does not let it be, say, it counts that the
// API server has abandoned the request by now.
func (a *Admission) examine(ctx context.Context, p *pending, abandoned bool) (ledger.PodRef, fate, error) {
	pod, err := a.get(ctx, p.ref)
	if err == nil && pod == nil {
		err = errors.New("the API server answered without a pod")
	}
	switch {
	case arbiter.IsNoPod(err):
		return p.ref, withdrawn, nil // a UID that is gone does not come back
	case err != nil:
		return p.ref, unknown, err
	}
	ref := ledger.PodRef{Namespace: p.ref.Namespace, Name: p.ref.Name, UID: pod.UID}
	switch what := fateOf(pod, p); {
	case what != unknown:
		return ref, what, nil
	case p.create:
		return ref, withdrawn, nil // another pod of that name
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err = a.o.Client.Annotate(ctx, p.ref, WithdrawnAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
	switch {
	case err != nil && abandoned: // before the pod was read
		return ref, withdrawn, nil
	case err != nil:
		return ref, unknown, err
	}
	if what := fateOf(pod, p); what != unknown {
		return ref, what, nil
	}
	return ref, withdrawn, nil
}

// fateOf tells what became of a binding by the pod as it is. It is unknown where
// the pod is unbound.
func fateOf(pod *v1.Pod, p *pending) fate {
	finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case p.ref.UID != "" && pod.UID != p.ref.UID:
		return withdrawn
	case pod.Spec.NodeName == p.node:
		return happened
	case pod.Spec.NodeName != "", pod.DeletionTimestamp != nil, finished:
		return withdrawn
	default:
		return unknown
	}
}

func (a *Admission) log(p *pending) logrus.FieldLogger {
	return a.o.Log.WithFields(logrus.Fields{
		"pod": p.ref.String(), "uid": p.ref.UID, "node": httpjson.Clip(p.node), "scheduler": p.scheduler,
	})
}
