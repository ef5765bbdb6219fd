package decide

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// withdrawnAnnotation is patched on a pod when a binding of it that was allowed is withdrawn. Its value, the time, is
// there to change the pod's resourceVersion.
const withdrawnAnnotation = "globalreserve.io/binding-withdrawn"

const (
	tick           = 250 * time.Millisecond // how often pending bindings are looked through
	settlers       = 8                      // how many are settled at the same time
	round          = 4 * settlers           // how many are settled before the next look at what is due
	pendingTimeout = 3 * time.Second        // of one request to the API server
	firstPending   = 250 * time.Millisecond // the first pause between tries to settle one; overdue binds have the longest
	selfPause      = 5 * time.Second        // between tries to find out who the server is
	// earlyAge is the age from which on a binding may be withdrawn because its scheduler has turned to another node: by
	// far most are carried out within milliseconds.
	earlyAge = 500 * time.Millisecond
)

// pendings are the bindings and pods that were allowed and whose fate is not known.
// See the package comment.
type pendings struct {
	ctx    context.Context // of Run; ends when Stop begins to settle
	cancel context.CancelFunc
	loop   sync.Mutex // held by Run

	// mu guards the rest. It is held over a decision of the ledger and what is
	// remembered of it, so that the two agree.
	mu      sync.Mutex
	stopped bool
	self    string // the user that the server is to the API server; empty if not known
	of      map[ledger.PodRef]*pending
	resizes map[ledger.PodRef]*pending
	in      map[string]int       // how many of them all are in a namespace
	failed  map[string]time.Time // until when a namespace creates no pod with a node, as one was never created
	undone  *lru.Cache           // by undoneKey
}

// beside are the pending ones of the same kind. mu is held.
func (s *pendings) beside(p *pending) map[ledger.PodRef]*pending {
	if p.resize {
		return s.resizes
	}
	return s.of
}

// len is how many are pending. mu is held.
func (s *pendings) len() int { return len(s.of) + len(s.resizes) }

// add makes a binding, or a resize, pending, in the place of another one of its pod if there is one. mu is held.
func (s *pendings) add(p *pending) {
	if s.beside(p)[p.ref] == nil {
		s.in[p.ref.Namespace]++
	}
	s.beside(p)[p.ref] = p
}

// remove forgets one that is pending. mu is held.
func (s *pendings) remove(p *pending) {
	delete(s.beside(p), p.ref)
	if s.in[p.ref.Namespace]--; s.in[p.ref.Namespace] == 0 {
		delete(s.in, p.ref.Namespace)
	}
}

// creates reports whether a pod of a name is being created.
func (s *pendings) creates(pod ledger.PodRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, p := range s.of {
		if p.create && ref.Namespace == pod.Namespace && ref.Name == pod.Name && ref.UID != pod.UID {
			return true
		}
	}
	return false
}

// crowded reports whether one more of a namespace is too many. A namespace may have as many as are still free: so
// there is always something left for the others, and however many fill the table, they share it evenly. mu is held.
func (s *pendings) crowded(namespace string, limit int) bool {
	return s.in[namespace] >= limit-s.len()
}

// busy returns the error for a namespace that has too many. mu is held.
func (s *pendings) busy(pod ledger.PodRef, node string) *gates.Error {
	e := &gates.Error{Outcome: gates.Busy, Pod: pod, Node: node, Soon: true}
	if in := s.in[pod.Namespace]; in > 0 {
		e.Why = fmt.Sprintf("%d bindings and pods of namespace %s were allowed and have not shown up yet, which is its share",
			in, pod.Namespace)
	}
	return e
}

// pending is an allowed binding, or an allowed creation of a pod, while it is not known
// whether it was carried out. Its allocation is Binding. Or it is an allowed resize; see AdmitResize.
type pending struct {
	ref       ledger.PodRef
	node      string
	from      string // the node asked for, where the Binding was redirected
	scheduler string
	request   *resources.Request
	devices   *ledger.DeviceRequest
	create    bool
	caller    string // who creates it
	resize    bool
	version   uint64 // of the pod that is resized, or the newest that is bound
	// asked is what the spec of the pod that is resized is to ask for.
	asked *resources.Request

	since      time.Time // the first time that it was allowed
	allowed    time.Time // the last time
	generation int       // how often it was allowed
	due        time.Time // when it is to be settled
	pause      time.Duration
	settling   bool // somebody is settling it
}

func newPendings() pendings {
	ctx, cancel := context.WithCancel(context.Background())
	return pendings{
		ctx: ctx, cancel: cancel, of: map[ledger.PodRef]*pending{}, resizes: map[ledger.PodRef]*pending{},
		in: map[string]int{}, failed: map[string]time.Time{}, undone: lru.New(maxUndone),
	}
}

// Run settles what was allowed and has not shown up, until ctx ends or Stop is called,
// which settles the rest. It is to be called once.
func (a *Arbiter) Run(ctx context.Context) error {
	a.pending.loop.Lock()
	defer a.pending.loop.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.pending.ctx, cancel)()
	var asked time.Time
	known, pause := false, tick
	for informer.Pause(ctx, pause) {
		if !known && time.Since(asked) >= selfPause {
			known, asked = a.askSelf(ctx), time.Now()
		}
		pause = tick
		if a.settleAll(ctx, round, func(p *pending) bool { return !time.Now().Before(p.due) }) {
			pause = 0 // for others
		}
	}
	return nil
}

// stopPending refuses to allow more and settles what is pending, until ctx ends. Nothing can stop the creation of a
// pod.
func (a *Arbiter) stopPending(ctx context.Context) {
	a.pending.mu.Lock()
	a.pending.stopped = true
	a.pending.mu.Unlock()
	a.pending.cancel()
	a.pending.loop.Lock()
	defer a.pending.loop.Unlock()
	a.settleAll(ctx, math.MaxInt, func(p *pending) bool { return !p.create })
	a.pending.mu.Lock()
	defer a.pending.mu.Unlock()
	if left := a.pending.len(); left > 0 {
		a.o.Log.WithField("count", left).
			Warn("stopped while bindings or pods that were allowed may still be carried out; the next server learns of them " +
				"when they are")
	}
}

// askSelf finds out who the server is to the API server. It reports false where
// it should be tried again.
func (a *Arbiter) askSelf(ctx context.Context) (known bool) {
	asking, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	name, err := a.o.API.Self(asking)
	if err != nil {
		if ctx.Err() == nil {
			a.o.Log.WithError(err).
				Warn("cannot find out the server's own user name: until then its own bindings must be kept from the webhook by " +
					"a matchCondition")
		}
		return apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	}
	a.pending.mu.Lock()
	defer a.pending.mu.Unlock()
	a.pending.self = name
	return true
}

func (s *pendings) isSelf(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self != "" && s.self == user
}

// settleAll forgets the pending bindings whose outcome the watch has brought. Of the others it settles those that are
// chosen, up to most of them. It reports whether it leaves others.
func (a *Arbiter) settleAll(ctx context.Context, most int, chosen func(*pending) bool) (others bool) {
	group := errgroup.Group{}
	group.SetLimit(settlers)
	taken, others := a.takePending(most, chosen)
	for _, p := range taken {
		group.Go(func() error {
			a.settlePending(ctx, p)
			return nil
		})
	}
	_ = group.Wait() // none fails
	return others
}

// takePending forgets what is over and returns the chosen rest, marked as being settled: up to most of them, of each
// namespace in turn. It reports whether there are others.
func (a *Arbiter) takePending(most int, chosen func(*pending) bool) (taken []*pending, others bool) {
	a.pending.mu.Lock()
	defer a.pending.mu.Unlock()
	maps.DeleteFunc(a.pending.failed, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	for _, all := range []map[ledger.PodRef]*pending{a.pending.of, a.pending.resizes} {
		for _, p := range all {
			switch {
			case p.settling:
			case a.isOver(p):
				a.over(p)
			case chosen(p):
				taken = append(taken, p)
			}
		}
	}
	if others = len(taken) > most; others {
		taken = informer.InTurn(taken, func(p *pending) string { return p.ref.Namespace })[:most]
	}
	for _, p := range taken {
		p.settling = true
	}
	return taken, others
}

// isOver reports whether the allocation shows what became of a binding: it was carried
// out, or its pod is gone or elsewhere. a.pending.mu is held.
func (a *Arbiter) isOver(p *pending) bool {
	if p.resize {
		return a.isOverResize(p)
	}
	allocation, ok := a.o.Ledger.Allocation(p.ref)
	return !ok || allocation.Node != p.node || allocation.State != ledger.Binding
}

// over forgets what is over. a.pending.mu is held.
func (a *Arbiter) over(p *pending) {
	a.pending.remove(p)
	allocation, ok := a.o.Ledger.Allocation(p.ref)
	if ok && allocation.State == ledger.Bound && !p.resize { // a resize may be another one
		a.pending.undone.Remove(p.key())
	}
}

// settleEarly settles the pending binding of a pod whose scheduler asks for
// another node, and reports whether that is out of the way.
func (a *Arbiter) settleEarly(ctx context.Context, ref ledger.PodRef) bool {
	a.pending.mu.Lock()
	p := a.pending.of[ref]
	if p == nil || p.settling || time.Since(p.allowed) < earlyAge {
		a.pending.mu.Unlock()
		return false
	}
	p.settling = true
	a.pending.mu.Unlock()
	return a.settlePending(ctx, p)
}

// settlePending finds out what became of a binding, or makes sure that it never happens. It reports whether that
// succeeded. p.settling is set when it is called.
func (a *Arbiter) settlePending(ctx context.Context, p *pending) bool {
	a.pending.mu.Lock()
	generation, abandoned := p.generation, time.Since(p.allowed) >= createGrace
	a.pending.mu.Unlock()
	ref, what, err := a.examine(ctx, p, abandoned)
	a.pending.mu.Lock()
	defer a.pending.mu.Unlock()
	p.settling = false
	switch {
	case what == gates.Bound:
		a.o.Ledger.Confirm(ref, p.node)
		a.forget(p)
		a.pending.undone.Remove(p.key())
		return true
	case what != gates.Unknown && p.generation != generation:
		return false // allowed once more meanwhile, and that may happen
	case what != gates.Unknown:
		if what == gates.Failed && !p.create {
			a.pending.didNotHappen(p)
		}
		a.withdraw(p)
		return true
	default:
		p.pause = min(max(2*p.pause, firstPending), apiwrite.LongestPauseOverdue)
		p.due = time.Now().Add(p.pause)
		a.logPending(p).WithError(err).
			Warn("it is not known whether an allowed binding or resize was carried out; its capacity stays taken until it is")
		return false
	}
}

// withdraw ends the allocation of a binding that did not happen. a.pending.mu is held.
func (a *Arbiter) withdraw(p *pending) {
	a.forget(p)
	if p.resize {
		a.withdrawResize(p)
		return
	}
	if p.create {
		a.pending.failed[p.ref.Namespace] = time.Now().Add(failedPause)
	}
	if a.gangs.bindFailed(p.ref, p.node) {
		a.o.Metrics.ObserveDecision("admission", p.scheduler, "withdrawn")
		a.logPending(p).WithField("result", "withdrawn").
			Info("an allowed binding did not happen; its capacity was given back")
	}
}

// forget makes a binding not pending any more. Its pod may have another one that
// is, for another node. a.pending.mu is held.
func (a *Arbiter) forget(p *pending) {
	if a.pending.beside(p)[p.ref] == p {
		a.pending.remove(p)
	}
}

// examine reads the pod and, where that does not show what became of a binding or a resize, patches it so that none
// that was allowed before can be carried out. It returns the pod as it is, with its UID, and what became of the
// binding: any outcome but Bound, Changed and Unknown means that it never happens. The pod may not let itself be
// patched, because of another webhook for example. Then abandoned counts: it says that the API server has abandoned the
// request by now.
func (a *Arbiter) examine(ctx context.Context, p *pending, abandoned bool) (ledger.PodRef, gates.Outcome, error) {
	reading, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	pod, err := a.o.API.Get(reading, p.ref.Namespace, p.ref.Name)
	switch {
	case err != nil && isNoPod(err):
		return p.ref, gates.PodGone, nil // a UID that is gone does not come back
	case err != nil:
		return p.ref, gates.Unknown, err
	}
	ref := ledger.PodRef{Namespace: p.ref.Namespace, Name: p.ref.Name, UID: pod.UID}
	if what := a.shownBy(p, pod); what != gates.Unknown {
		return ref, what, nil
	}
	patching, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	pod, err = a.o.API.Annotate(patching, p.ref, withdrawnAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
	switch {
	case err != nil && abandoned: // before the pod was read
		return ref, gates.Failed, nil
	case err != nil:
		return ref, gates.Unknown, err
	}
	if what := a.shownBy(p, pod); what != gates.Unknown {
		return ref, what, nil
	}
	return ref, gates.Failed, nil
}

// shownBy returns what a pod that was read shows of what is pending, Unknown where that may still be carried out.
func (a *Arbiter) shownBy(p *pending, pod *v1.Pod) gates.Outcome {
	if p.resize {
		return a.resizeShownBy(p, pod)
	}
	what := outcomeByPod(pod, p.ref, p.node)
	if what == gates.Unknown && p.create {
		return gates.UIDMismatch // another pod of that name
	}
	return what
}

func (a *Arbiter) logPending(p *pending) logrus.FieldLogger {
	return a.o.Log.WithFields(logrus.Fields{
		"pod": p.ref.String(), "uid": p.ref.UID, "node": p.node, "scheduler": p.scheduler,
	})
}
