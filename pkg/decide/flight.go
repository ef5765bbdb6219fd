package decide

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// bind is a whole flight.
func (a *Arbiter) bind(f *flight) error {
	if decided, err := a.allocate(f); decided {
		return err
	}
	return a.send(f)
}

// allocate makes the allocation, or returns true where there is nothing to send.
func (a *Arbiter) allocate(f *flight) (decided bool, err error) {
	ctx, span := tracing.Start(f.ctx, tracing.Decide)
	defer span.End()
	info, err := a.findToBind(ctx, f.pod, 0, f.node)
	if err != nil {
		return true, f.at(err)
	}
	f.info.Store(info)
	if decided, err := f.judge(info); decided {
		return true, err
	}
	to := nowhere
	if f.chosen {
		to = f.node
	}
	placement := a.o.Question.For(info.WithCaller(f.caller), f.node)
	placement.NoDRA = true
	placement.Preempt = a.o.Waiting.MayPreempt(f.pod.UID)
	grant, err := a.gangs.startBind(info, &placement, to)
	switch {
	case err != nil:
		return true, err
	case grant.Before == ledger.Bound:
		return true, nil
	case grant.Before == ledger.Binding:
		// Flights of this Arbiter are joined, so this one is not ours.
		return true, f.fail(gates.InFlight, nil)
	default:
		err := a.applyAllowedResize(info, f.node)
		if err == nil && f.chosen { // from now on pods that it must not be with are not sent there
			err = a.clashes(ctx, info, f.node)
		}
		if err != nil {
			err = a.release(f, err)
			a.gangs.clashed(info, f.node, err)
			return true, err
		}
		a.o.Waiting.ForbidPreempting(f.pod.UID)
		f.version, f.annotations = formatVersion(info), a.granted(info, &grant)
		return false, nil
	}
}

// granted returns the annotations of a Binding that record what its pod was granted, and to which caller.
func (a *Arbiter) granted(pod *cluster.Pod, grant *ledger.Grant) map[string]string {
	annotations := map[string]string{v1alpha1.CallerAnnotation: grant.Caller}
	maps.Copy(annotations, pod.Matching(grant.Slot, a.o.Question.Matcher.Origin))
	return pod.Given(annotations, grant.Devices)
}

// judge decides a bind by the pod alone where that is possible.
func (f *flight) judge(info *cluster.Pod) (decided bool, err error) {
	switch {
	case info.Finished:
		return true, f.fail(gates.PodGone, nil)
	case info.Node == f.node:
		return true, nil
	case info.Node != "":
		return true, f.elsewhere(info.Node)
	case info.Deleting:
		return true, f.fail(gates.PodGone, nil)
	case info.Gated:
		return true, f.fail(gates.Gated, nil)
	case info.ResourceVersion == 0:
		return true, f.fail(gates.Failed, errNoVersion)
	default:
		return false, nil
	}
}

// at makes an error the flight's.
func (f *flight) at(err error) *gates.Error {
	var e *gates.Error
	if errors.As(err, &e) {
		e.Node = f.node
		return e
	}
	return f.fail(gates.Failed, err)
}

func (f *flight) elsewhere(node string) *gates.Error {
	e := f.fail(gates.BoundElsewhere, nil)
	e.BoundTo = node
	return e
}

// send POSTs the Binding until its outcome is known; see the package comment
// for why it may be sent again. The allocation is Binding when it is called.
func (a *Arbiter) send(f *flight) error {
	var cause error
	for {
		said, slow := apiwrite.NotSent, false
		turn := a.turn(f)
		sent := time.Now()
		undecided := a.o.Ledger.Ready() // another server may be deciding by now
		switch {
		case !turn:
			cause = errNoTurn
		case undecided == nil && sent.Before(f.deadline.Add(bindSettle)):
			cause = a.post(f)
			said = classify(cause)
			slow = said == apiwrite.Unknown || said == apiwrite.NotSent
		}
		if turn {
			a.turns.release(slow)
		}
		if undecided != nil && !f.InDoubt() {
			return a.release(f, undecided.Of(f.pod, f.node))
		}
		if known, err := a.settle(f, said, sent, cause); known {
			return err
		}
		if said == apiwrite.Conflict && !f.InDoubt() && !f.hurried {
			f.hurried = true // a scheduler writes a condition before it binds; after further writes the flight pauses
			continue
		}
		longest := apiwrite.LongestPause
		if f.overdue.Err() != nil {
			longest = apiwrite.LongestPauseOverdue
		}
		wait := f.Next(longest, cause)
		if !f.InDoubt() && (said == apiwrite.Refused || time.Until(f.deadline) <= wait) {
			return a.release(f, f.fail(gates.Failed, cause))
		}
		if !a.pause(f, wait) { // Stop cut it off
			if f.InDoubt() {
				return f.fail(gates.Unknown, cause)
			}
			return a.release(f, f.fail(gates.Stopping, cause))
		}
		if known, err := a.observed(f); known {
			return err
		}
	}
}

// settle ends the allocation if the answer to a POST, and where that is not enough a live read, shows the outcome.
func (a *Arbiter) settle(f *flight, said apiwrite.Fate, sent time.Time, cause error) (known bool, err error) {
	switch {
	case said == apiwrite.Done:
		a.confirm(f)
		return true, nil
	case said == apiwrite.Missing:
		return true, a.release(f, f.fail(gates.PodGone, nil))
	case !f.InDoubt() && (said == apiwrite.Refused || said == apiwrite.NotSent):
		return false, nil // nothing is under way, so there is nothing to read
	}
	asked := time.Now() // the read shows this moment or a later one
	pod, readErr := a.get(f)
	switch {
	case readErr == nil:
		known, err = a.settleByPod(f, pod, said, cause)
	case isNoPod(readErr):
		known, err = true, a.release(f, f.fail(gates.PodGone, nil))
	}
	switch {
	case known:
		return true, err
	case readErr == nil && cluster.ParseVersion(pod.ResourceVersion) > f.info.Load().ResourceVersion:
		return a.judgeAgain(f, pod)
	case said == apiwrite.Conflict || said == apiwrite.Unknown:
		f.Sent(sent, said)
	case readErr == nil && f.Over(asked, bindSettle):
		return true, a.release(f, f.fail(gates.Failed, cause)) // no POST can still be under way
	}
	return false, nil
}

// settleByPod ends the allocation if the pod as it is now shows the outcome.
func (a *Arbiter) settleByPod(f *flight, pod *v1.Pod, said apiwrite.Fate, cause error) (known bool, err error) {
	switch outcome := outcomeByPod(pod, f.pod, f.node); {
	case outcome == gates.Bound:
		a.confirm(f)
		return true, nil
	case outcome == gates.BoundElsewhere:
		return true, a.release(f, f.elsewhere(pod.Spec.NodeName))
	case outcome != gates.Unknown:
		return true, a.release(f, f.fail(outcome, nil))
	case said == apiwrite.Conflict && len(pod.Spec.SchedulingGates) > 0 && !f.InDoubt():
		return true, a.release(f, f.fail(gates.Failed, cause)) // the gates explain the 409
	default:
		return false, nil
	}
}

// judgeAgain goes on with an unbound pod that is newer than the one that was judged. No Binding that was sent before
// can be carried out any more, as its version is a precondition. Where the pod as it is now asks for the same, the
// decision holds for it. Where it asks for something else, its scheduler has to decide again, too.
func (a *Arbiter) judgeAgain(f *flight, pod *v1.Pod) (known bool, err error) {
	f.Lost = time.Time{}
	info, err := a.o.Question.Reader.NewPod(pod)
	if err == nil && a.o.Question.Same(f.info.Load(), info) {
		f.info.Store(info)
		f.version = formatVersion(info)
		return false, nil
	}
	a.pods.named(f.pod.UID, cluster.ParseVersion(pod.ResourceVersion)) // the watch may bring it later than the next try
	return true, a.release(f, f.fail(gates.Changed, err))
}

// outcomeByPod returns what became of the binding of ref to a node, by a pod as it is now. Where ref has no UID the pod
// may have any. The outcome is Unknown where the pod is unbound.
func outcomeByPod(pod *v1.Pod, ref ledger.PodRef, node string) gates.Outcome {
	switch {
	case ref.UID != "" && pod.UID != ref.UID:
		return gates.UIDMismatch
	case pod.Spec.NodeName == node:
		return gates.Bound
	case pod.Spec.NodeName != "":
		return gates.BoundElsewhere
	case pod.DeletionTimestamp != nil, pod.Status.Phase == v1.PodSucceeded, pod.Status.Phase == v1.PodFailed:
		return gates.PodGone
	default:
		return gates.Unknown
	}
}

// observed ends a flight where the watch was faster and has brought the outcome to the ledger.
func (a *Arbiter) observed(f *flight) (known bool, err error) {
	allocation, ok := a.o.Ledger.Allocation(f.pod)
	switch {
	case !ok:
		return true, f.fail(gates.PodGone, nil)
	case allocation.Node != f.node:
		return true, f.elsewhere(allocation.Node)
	default:
		return allocation.State == ledger.Bound, nil
	}
}

func (a *Arbiter) confirm(f *flight) {
	if !a.o.Ledger.Confirm(f.pod, f.node) {
		a.log(f).Debug("A pod that was bound has no allocation on its node any more")
	}
}

func (a *Arbiter) release(f *flight, err error) error {
	a.gangs.bindFailed(f.pod, f.node)
	return err
}

// pause waits and reports whether the flight goes on.
func (a *Arbiter) pause(f *flight, d time.Duration) bool {
	if !f.reported && f.overdue.Err() != nil && a.ctx.Err() == nil {
		f.reported = true
		a.o.Metrics.ObserveBindOutcome(string(gates.Unknown))
		a.log(f).Warn("The outcome of a bind was not known in time; its allocation stays until it is")
	}
	return informer.Pause(a.ctx, d)
}

// turn waits until the API server may be sent another Binding. It reports false where the time for that is over. A
// Binding that may have been carried out is never given up that way: it is sent again until its outcome is known.
func (a *Arbiter) turn(f *flight) bool {
	if f.InDoubt() {
		return a.turns.take(a.ctx)
	}
	return a.turns.take(f.overdue)
}

func (a *Arbiter) post(f *flight) error {
	ctx, cancel := context.WithTimeout(f.ctx, RequestTimeout(a.o.BindTimeout))
	defer cancel()
	f.posted = true
	return a.o.API.Bind(ctx, newBinding(f.pod, f.version, f.node, a.o.Term.Get().Annotate(maps.Clone(f.annotations))))
}

func (a *Arbiter) get(f *flight) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(f.ctx, RequestTimeout(a.o.BindTimeout))
	defer cancel()
	return a.o.API.Get(ctx, f.pod.Namespace, f.pod.Name)
}
