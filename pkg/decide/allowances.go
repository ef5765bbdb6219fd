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
	tick             = 250 * time.Millisecond // how often allowances are looked through
	settlers         = 8                      // how many are settled at the same time
	round            = 4 * settlers           // how many are settled before the next look at what is due
	settleTimeout    = 3 * time.Second        // of one request to the API server
	firstSettlePause = 250 * time.Millisecond // between tries to settle one; overdue binds have the longest
	selfPause        = 5 * time.Second        // between tries to find out who the server is
	// earlyAge is the age from which on a binding may be withdrawn because its scheduler has turned to another node: by
	// far most are carried out within milliseconds.
	earlyAge = 500 * time.Millisecond
)

// allowances are the bindings and pods that were allowed and whose fate is not known. See the package comment.
type allowances struct {
	ctx    context.Context // of Run; ends when Stop begins to settle
	cancel context.CancelFunc
	loop   sync.Mutex // held by Run

	// mu guards the rest. It is held over a decision of the ledger and what is remembered of it, so that the two agree.
	mu      sync.Mutex
	stopped bool
	self    string // the user that the server is to the API server; empty if not known
	of      map[allowanceKey]*allowance
	in      map[string]int       // how many are in a namespace
	failed  map[string]time.Time // until when a namespace creates no pod with a node, as one was never created
	undone  *lru.Cache           // by allowanceKey
}

// allowanceKey names a Binding of a pod, or a resize.
type allowanceKey struct {
	pod    ledger.PodRef
	resize bool
}

func (p *allowance) key() allowanceKey { return allowanceKey{p.ref, p.resize} }

// add records an allowance, in the place of another one of its pod if there is one. mu is held.
func (s *allowances) add(p *allowance) {
	if s.of[p.key()] == nil {
		s.in[p.ref.Namespace]++
	}
	s.of[p.key()] = p
}

// remove forgets an allowance. mu is held.
func (s *allowances) remove(p *allowance) {
	delete(s.of, p.key())
	if s.in[p.ref.Namespace]--; s.in[p.ref.Namespace] == 0 {
		delete(s.in, p.ref.Namespace)
	}
}

// creates reports whether a pod of a name is being created.
func (s *allowances) creates(pod ledger.PodRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.of {
		if p.create && p.ref.Namespace == pod.Namespace && p.ref.Name == pod.Name && p.ref.UID != pod.UID {
			return true
		}
	}
	return false
}

// crowded reports whether one more of a namespace is too many. A namespace may have as many as are still free: so
// there is always something left for the others, and however many fill the table, they share it evenly. mu is held.
func (s *allowances) crowded(namespace string, limit int) bool {
	return s.in[namespace] >= limit-len(s.of)
}

// busy returns the error for a namespace that has too many. mu is held.
func (s *allowances) busy(pod ledger.PodRef, node string) *gates.Error {
	e := &gates.Error{Outcome: gates.Busy, Pod: pod, Node: node, Soon: true}
	if in := s.in[pod.Namespace]; in > 0 {
		e.Why = fmt.Sprintf("%d bindings and pods of namespace %s were allowed and have not shown up yet, which is its share",
			in, pod.Namespace)
	}
	return e
}

// allowance is an allowed binding, or an allowed creation of a pod, while it is not known
// whether it was carried out. Its allocation is Binding. Or it is an allowed resize; see AdmitResize.
type allowance struct {
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

func newAllowances() allowances {
	ctx, cancel := context.WithCancel(context.Background())
	return allowances{
		ctx: ctx, cancel: cancel, of: map[allowanceKey]*allowance{},
		in: map[string]int{}, failed: map[string]time.Time{}, undone: lru.New(maxUndone),
	}
}

// Run settles what was allowed and has not shown up, until ctx ends or Stop is called,
// which settles the rest. It is to be called once.
func (a *Arbiter) Run(ctx context.Context) error {
	a.allowances.loop.Lock()
	defer a.allowances.loop.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.allowances.ctx, cancel)()
	var asked time.Time
	known, pause := false, tick
	for informer.Pause(ctx, pause) {
		if !known && time.Since(asked) >= selfPause {
			known, asked = a.askSelf(ctx), time.Now()
		}
		pause = tick
		if a.settleAll(ctx, round, func(p *allowance) bool { return !time.Now().Before(p.due) }) {
			pause = 0 // for others
		}
	}
	return nil
}

// stopAllowances refuses to allow more and settles the allowances, until ctx ends. Nothing can stop the creation of a
// pod.
func (a *Arbiter) stopAllowances(ctx context.Context) {
	a.allowances.mu.Lock()
	a.allowances.stopped = true
	a.allowances.mu.Unlock()
	a.allowances.cancel()
	a.allowances.loop.Lock()
	defer a.allowances.loop.Unlock()
	a.settleAll(ctx, math.MaxInt, func(p *allowance) bool { return !p.create })
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	if left := len(a.allowances.of); left > 0 {
		a.o.Log.WithField("count", left).
			Warn("stopped while bindings or pods that were allowed may still be carried out; the next server learns of them " +
				"when they are")
	}
}

// askSelf finds out who the server is to the API server. It reports false where it should be tried again.
func (a *Arbiter) askSelf(ctx context.Context) (known bool) {
	asking, cancel := context.WithTimeout(ctx, settleTimeout)
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
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	a.allowances.self = name
	return true
}

func (s *allowances) isSelf(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self != "" && s.self == user
}

// settleAll forgets the allowances whose outcome the watch has brought. Of the others it settles those that are
// chosen, up to most of them. It reports whether it leaves others.
func (a *Arbiter) settleAll(ctx context.Context, most int, chosen func(*allowance) bool) (others bool) {
	group := errgroup.Group{}
	group.SetLimit(settlers)
	taken, others := a.takeAllowance(most, chosen)
	for _, p := range taken {
		group.Go(func() error {
			a.settleAllowance(ctx, p)
			return nil
		})
	}
	_ = group.Wait() // none fails
	return others
}

// takeAllowance forgets what is over and returns the chosen rest, marked as being settled: up to most of them, of each
// namespace in turn. It reports whether there are others.
func (a *Arbiter) takeAllowance(most int, chosen func(*allowance) bool) (taken []*allowance, others bool) {
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	maps.DeleteFunc(a.allowances.failed, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	for _, p := range a.allowances.of {
		switch {
		case p.settling:
		case a.isOver(p):
			a.over(p)
		case chosen(p):
			taken = append(taken, p)
		}
	}
	if others = len(taken) > most; others {
		taken = informer.InTurn(taken, func(p *allowance) string { return p.ref.Namespace })[:most]
	}
	for _, p := range taken {
		p.settling = true
	}
	return taken, others
}

// isOver reports whether the allocation shows what became of a binding: it was carried
// out, or its pod is gone or elsewhere. a.allowances.mu is held.
func (a *Arbiter) isOver(p *allowance) bool {
	if p.resize {
		return a.isOverResize(p)
	}
	allocation, ok := a.o.Ledger.Allocation(p.ref)
	return !ok || allocation.Node != p.node || allocation.State != ledger.Binding
}

// over forgets what is over. a.allowances.mu is held.
func (a *Arbiter) over(p *allowance) {
	a.allowances.remove(p)
	allocation, ok := a.o.Ledger.Allocation(p.ref)
	if ok && allocation.State == ledger.Bound && !p.resize { // a resize may be another one
		a.allowances.undone.Remove(p.key())
	}
}

// settleEarly settles the allowed binding of a pod whose scheduler asks for
// another node, and reports whether that is out of the way.
func (a *Arbiter) settleEarly(ctx context.Context, ref ledger.PodRef) bool {
	a.allowances.mu.Lock()
	p := a.allowances.of[allowanceKey{pod: ref}]
	if p == nil || p.settling || time.Since(p.allowed) < earlyAge {
		a.allowances.mu.Unlock()
		return false
	}
	p.settling = true
	a.allowances.mu.Unlock()
	return a.settleAllowance(ctx, p)
}

// settleAllowance finds out what became of a binding, or makes sure that it never happens. It reports whether that
// succeeded. p.settling is set when it is called.
func (a *Arbiter) settleAllowance(ctx context.Context, p *allowance) bool {
	a.allowances.mu.Lock()
	generation, abandoned := p.generation, time.Since(p.allowed) >= createGrace
	a.allowances.mu.Unlock()
	ref, what, err := a.examine(ctx, p, abandoned)
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	p.settling = false
	switch {
	case what == gates.Bound:
		a.o.Ledger.Confirm(ref, p.node)
		a.forget(p)
		a.allowances.undone.Remove(p.key())
		return true
	case what != gates.Unknown && p.generation != generation:
		return false // allowed once more meanwhile, and that may happen
	case what != gates.Unknown:
		if what == gates.Failed && !p.create {
			a.allowances.didNotHappen(p)
		}
		a.withdraw(p)
		return true
	default:
		p.pause = min(max(2*p.pause, firstSettlePause), apiwrite.LongestPauseOverdue)
		p.due = time.Now().Add(p.pause)
		a.logAllowance(p).WithError(err).
			Warn("it is not known whether an allowed binding or resize was carried out; its capacity stays taken until it is")
		return false
	}
}

// withdraw ends the allocation of a binding that did not happen. a.allowances.mu is held.
func (a *Arbiter) withdraw(p *allowance) {
	a.forget(p)
	if p.resize {
		a.withdrawResize(p)
		return
	}
	if p.create {
		a.allowances.failed[p.ref.Namespace] = time.Now().Add(failedPause)
	}
	if a.gangs.bindFailed(p.ref, p.node) {
		a.o.Metrics.ObserveDecision("admission", p.scheduler, "withdrawn")
		a.logAllowance(p).WithField("result", "withdrawn").
			Info("an allowed binding did not happen; its capacity was given back")
	}
}

// forget removes an allowance. Its pod may have another one that is, for another node. a.allowances.mu is held.
func (a *Arbiter) forget(p *allowance) {
	if a.allowances.of[p.key()] == p {
		a.allowances.remove(p)
	}
}

// examine reads the pod and, where that does not show what became of a binding or a resize, patches it so that none
// that was allowed before can be carried out. It returns the pod as it is, with its UID, and what became of the
// binding: any outcome but Bound, Changed and Unknown means that it never happens. The pod may not let itself be
// patched, because of another webhook for example. Then abandoned counts: it says that the API server has abandoned the
// request by now.
func (a *Arbiter) examine(ctx context.Context, p *allowance, abandoned bool) (ledger.PodRef, gates.Outcome, error) {
	reading, cancel := context.WithTimeout(ctx, settleTimeout)
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
	patching, cancel := context.WithTimeout(ctx, settleTimeout)
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

// shownBy returns what a pod that was read shows of an allowance, Unknown where that may still be carried out.
func (a *Arbiter) shownBy(p *allowance, pod *v1.Pod) gates.Outcome {
	if p.resize {
		return a.resizeShownBy(p, pod)
	}
	what := outcomeByPod(pod, p.ref, p.node)
	if what == gates.Unknown && p.create {
		return gates.UIDMismatch // another pod of that name
	}
	return what
}

func (a *Arbiter) logAllowance(p *allowance) logrus.FieldLogger {
	return a.o.Log.WithFields(logrus.Fields{
		"pod": p.ref.String(), "uid": p.ref.UID, "node": p.node, "scheduler": p.scheduler,
	})
}
