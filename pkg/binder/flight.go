package binder

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// The pauses between tries grow from the first to the longest.
const (
	firstPause          = 50 * time.Millisecond
	longestPause        = time.Second     // while callers wait
	longestPauseOverdue = 5 * time.Second // afterwards
)

// bind is a whole flight.
func (b *Binder) bind(f *flight) error {
	info, err := b.find(f)
	if err != nil {
		return err
	}
	f.info.Store(info)
	if decided, err := f.judge(info); decided {
		return err
	}
	placement := info.Placement(f.node)
	placement.Holds = b.o.Reservations.Candidates(info)
	if info.Devices != nil {
		placement.Devices = b.o.Devices.Devices(info)
	}
	placement.Preempt = b.o.Preemptors.Allowed(f.pod.UID)
	grant, rejection := b.o.Ledger.StartBind(&placement, b.o.Now())
	switch {
	case rejection != nil:
		e := f.fail(Refused, nil)
		e.Rejection = rejection
		return e
	case grant.Before == ledger.Bound:
		return nil
	case grant.Before == ledger.Binding:
		// Flights of this Binder are joined, so this one is not ours.
		return f.fail(InFlight, nil)
	default:
		b.o.Preemptors.Withdraw(f.pod.UID)
		f.annotations = info.Given(info.Matching(grant.Hold, b.o.Reservations.Origin), grant.Devices)
		return b.send(f)
	}
}

// find looks the pod up. An informer that does not know the pod, or knows an
// older one of that name, is behind and proves nothing; so is one whose pod is
// older than the one the scheduler asked about, which may have been resized
// since. A pod that asks for a resource no node had when it was remembered is
// looked at anew.
func (b *Binder) find(f *flight) (*podinfo.Info, error) {
	var newest *podinfo.Info
	consider := func(info *podinfo.Info, ok bool) {
		usable := ok && info.Ref == f.pod && len(info.Request.Unlisted) == 0
		if usable && (newest == nil || info.ResourceVersion > newest.ResourceVersion) {
			newest = info
		}
	}
	consider(b.o.Pods.Pod(f.pod.Namespace, f.pod.Name))
	consider(b.o.Recent.Get(f.pod.UID))
	if newest != nil {
		return newest, nil
	}
	pod, err := b.get(f)
	switch {
	case err != nil && IsNoPod(err):
		return nil, f.fail(PodGone, nil)
	case err != nil:
		return nil, f.fail(Failed, err)
	case pod.UID != f.pod.UID:
		return nil, f.fail(UIDMismatch, nil)
	}
	info, err := podinfo.New(b.o.Ledger.Table(), pod)
	if err != nil {
		return nil, f.fail(Failed, err)
	}
	if info.Bound() {
		observation := info.Observation()
		if info.Devices != nil {
			observation.Devices = b.o.Devices.Devices(info)
		}
		b.o.Ledger.ObservePod(observation) // the informer is behind: its room must not be granted until it comes
	}
	return info, nil
}

// judge decides a bind by the pod alone where that is possible.
func (f *flight) judge(info *podinfo.Info) (decided bool, err error) {
	switch {
	case info.Finished:
		return true, f.fail(PodGone, nil)
	case info.Node == f.node:
		return true, nil
	case info.Node != "":
		return true, f.elsewhere(info.Node)
	case info.Deleting:
		return true, f.fail(PodGone, nil)
	default:
		return false, nil
	}
}

func (f *flight) elsewhere(node string) *Error {
	e := f.fail(BoundElsewhere, nil)
	e.BoundTo = node
	return e
}

// send POSTs the Binding until its outcome is known; see the package comment
// for why it may be sent again. The claim is Binding when it is called.
func (b *Binder) send(f *flight) error {
	pause := firstPause
	var cause error
	for {
		said := answerNotSent
		sent := time.Now()
		if sent.Before(f.deadline.Add(b.o.Settle)) {
			cause = b.post(f)
			said = classify(cause)
		}
		if known, err := b.settle(f, said, sent, cause); known {
			return err
		}
		wait := spread(max(pause, suggested(cause)))
		if f.lost.IsZero() && (said == answerRefused || time.Until(f.deadline) <= wait) {
			return b.giveBack(f, f.fail(Failed, cause))
		}
		if !b.pause(f, wait) {
			return b.interrupted(f, cause)
		}
		if known, err := b.observed(f); known {
			return err
		}
		pause = min(2*pause, b.longest(f))
	}
}

// settle ends the claim if the answer to a POST, and where that is not enough a
// live read, tells the outcome.
func (b *Binder) settle(f *flight, said answer, sent time.Time, cause error) (known bool, err error) {
	switch {
	case said == answerBound:
		b.confirm(f)
		return true, nil
	case said == answerNoPod:
		return true, b.giveBack(f, f.fail(PodGone, nil))
	case f.lost.IsZero() && (said == answerRefused || said == answerNotSent):
		return false, nil // nothing is under way, so there is nothing to read
	}
	// Counted up to before the read, because that is the moment it tells of.
	settled := !f.lost.IsZero() && time.Since(f.lost) > b.o.Settle
	pod, readErr := b.get(f)
	switch {
	case readErr == nil:
		known, err = b.settleByPod(f, pod, said, cause)
	case IsNoPod(readErr):
		known, err = true, b.giveBack(f, f.fail(PodGone, nil))
	}
	switch {
	case known:
		return true, err
	case said == answerConflict || said == answerUnknown:
		f.lost = sent
	case readErr == nil && settled:
		return true, b.giveBack(f, f.fail(Failed, cause)) // no POST can still be under way
	}
	return false, nil
}

// settleByPod ends the claim if the pod as it is now tells the outcome.
func (b *Binder) settleByPod(f *flight, pod *v1.Pod, said answer, cause error) (known bool, err error) {
	finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case pod.UID != f.pod.UID:
		return true, b.giveBack(f, f.fail(UIDMismatch, nil))
	case pod.Spec.NodeName == f.node:
		b.confirm(f)
		return true, nil
	case pod.Spec.NodeName != "":
		return true, b.giveBack(f, f.elsewhere(pod.Spec.NodeName))
	case pod.DeletionTimestamp != nil || finished:
		return true, b.giveBack(f, f.fail(PodGone, nil))
	case said == answerConflict && len(pod.Spec.SchedulingGates) > 0 && f.lost.IsZero():
		return true, b.giveBack(f, f.fail(Failed, cause)) // that is what the 409 was for
	default:
		return false, nil
	}
}

// observed ends a flight that an observation of the informers was faster than.
func (b *Binder) observed(f *flight) (known bool, err error) {
	claim, ok := b.o.Ledger.Claim(f.pod)
	switch {
	case !ok:
		return true, f.fail(PodGone, nil)
	case claim.Node != f.node:
		return true, f.elsewhere(claim.Node)
	default:
		return claim.State == ledger.Bound, nil
	}
}

func (b *Binder) confirm(f *flight) {
	if !b.o.Ledger.Confirm(f.pod, f.node) {
		b.log(f).Debug("A pod that was bound has no claim on its node any more")
	}
}

func (b *Binder) giveBack(f *flight, err error) error {
	b.o.Ledger.BindFailed(f.pod, f.node)
	return err
}

// interrupted ends a flight that Stop cut off.
func (b *Binder) interrupted(f *flight, cause error) error {
	if f.lost.IsZero() {
		return b.giveBack(f, f.fail(Stopping, cause))
	}
	return f.fail(Unknown, cause)
}

// pause waits and reports whether the Binder goes on.
func (b *Binder) pause(f *flight, d time.Duration) bool {
	if !f.reported && f.overdue.Err() != nil && b.ctx.Err() == nil {
		f.reported = true
		b.o.OnOutcome(Unknown)
		b.log(f).Warn("The outcome of a bind was not known in time; its claim stays until it is")
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// spread makes a pause up to a quarter longer, so that the binds of an outage do
// not all return at once.
func spread(d time.Duration) time.Duration { return d + rand.N(d/4+1) }

func (b *Binder) longest(f *flight) time.Duration {
	if f.overdue.Err() != nil {
		return longestPauseOverdue
	}
	return longestPause
}

// suggested is the pause an answer of the API server asks for.
func suggested(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(time.Duration(seconds)*time.Second, longestPauseOverdue)
	}
	return 0
}

func (b *Binder) post(f *flight) error {
	ctx, cancel := context.WithTimeout(b.ctx, RequestTimeout(b.o.Timeout))
	defer cancel()
	f.posted = true
	return b.o.Client.Bind(ctx, newBinding(f.pod, f.node, f.annotations))
}

func (b *Binder) get(f *flight) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(b.ctx, RequestTimeout(b.o.Timeout))
	defer cancel()
	pod, err := b.o.Client.Get(ctx, f.pod.Namespace, f.pod.Name)
	if err == nil && pod == nil {
		return nil, errors.New("the API server answered without a pod")
	}
	return pod, err
}

func silentLogger() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}
