package decide

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ResizeQuery is a resize of a pod that the API server asks about before it writes it.
type ResizeQuery struct {
	// Before is the pod as it is, and Pod as it is to be: of another spec, and of the same status.
	Before, Pod *v1.Pod
	DryRun      bool
	// User is the caller that asks for it.
	User string
}

// AdmitResize decides whether a pod may be resized. A resize that takes no more than the pod counts for already is
// always allowed. What is granted beyond that counts until it is known whether the resize was written. The API server
// writes a resize on top of the version of the pod that it has shown, or asks again. So any newer version shows the
// outcome. Where none shows up, the pod is patched, as for a Binding. The errors are those of AdmitBinding.
func (a *Arbiter) AdmitResize(ctx context.Context, q *ResizeQuery) (Admitted, error) {
	ref := ledger.PodRef{Namespace: q.Before.Namespace, Name: q.Before.Name, UID: q.Before.UID}
	asked, grows, err := resources.ForResizedPod(a.o.Ledger.Table(), q.Before, q.Pod)
	switch {
	case err != nil:
		return Admitted{}, &UncountableError{Cause: err}
	case !grows:
		return Admitted{Undecided: true}, nil
	}
	if err := a.o.Ledger.Ready(); err != nil {
		return Admitted{}, err.Of(ref, q.Before.Spec.NodeName)
	}
	version := cluster.ParseVersion(q.Before.ResourceVersion)
	pod, err := a.pods.find(ctx, ref, version)
	switch {
	case err != nil:
		return Admitted{}, err
	case version == 0:
		return Admitted{Pod: pod}, &gates.Error{Outcome: gates.Failed, Pod: ref, Node: pod.Node, Cause: errNoVersion}
	case pod.Finished:
		return Admitted{Pod: pod, Undecided: true}, nil // it uses nothing any more
	}
	placement := a.o.Question.For(pod, pod.Node)
	placement.Request = &asked
	if err = a.resize(pod, &placement, q, version); err != nil && !q.DryRun {
		placement.Caller = q.User
		a.refusedFor(requeue.Resize, &placement, err)
	}
	return Admitted{Pod: pod}, err
}

// isWritten reports whether a pod asks for all that its resize was allowed to make it ask for. Another change of the
// pod says nothing of the resize.
func (a *Arbiter) isWritten(p *allowance, pod *v1.Pod) bool {
	now, err := resources.ForIncomingPod(a.o.Ledger.Table(), pod)
	return err == nil && covers(&now, p.asked)
}

// resize asks the ledger, and remembers what it granted to a pod. A pod that is neither bound nor being bound
// takes nothing yet: it is remembered, too, for a bind that begins before the resize is written.
func (a *Arbiter) resize(pod *cluster.Pod, asked *ledger.Placement, q *ResizeQuery, version uint64) error {
	dry := q.DryRun
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	before := a.allowances.of[allowanceKey{pod.Ref, true}]
	switch {
	case dry:
	case a.allowances.stopped:
		return &gates.Error{Outcome: gates.Stopping, Pod: pod.Ref, Node: pod.Node, Resize: true}
	case before == nil && a.allowances.crowded(pod.Ref.Namespace, a.o.MaxAllowances):
		e := a.allowances.busy(pod.Ref, pod.Node)
		e.Resize = true
		return e
	default:
		if e := a.allowances.tooOften(&allowance{ref: pod.Ref, node: pod.Node, resize: true}, before); e != nil {
			return e
		}
	}
	found, err := a.o.Ledger.Resize(asked, version, dry)
	if !found && pod.Bound() {
		a.pods.observe(pod) // the watch is about to
		if found, err = a.o.Ledger.Resize(asked, version, dry); !found {
			return &gates.Error{Outcome: gates.PodGone, Pod: pod.Ref, Node: pod.Node}
		}
	}
	if err != nil || dry {
		return err
	}
	p := before
	if p == nil {
		p = &allowance{ref: pod.Ref, node: pod.Node, scheduler: pod.Scheduler, resize: true}
		a.allowances.add(p)
	}
	spec, _ := resources.ForIncomingPod(a.o.Ledger.Table(), q.Pod)
	if p.asked == nil || covers(&spec, p.asked) {
		p.asked = &spec // else what was asked for before is still to be written
	}
	p.request, p.version = asked.Request, max(version, p.version)
	p.allow(grace)
	return nil
}

// applyAllowedResize makes a bind that has just begun count for an allowed resize of its pod as well. The bind may have
// looked at a version of the pod from before the resize.
func (a *Arbiter) applyAllowedResize(pod *cluster.Pod, node string) error {
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	p := a.allowances.of[allowanceKey{pod.Ref, true}]
	if p == nil || pod.ResourceVersion > p.version {
		return nil
	}
	placement := a.o.Question.For(pod, node)
	placement.Request = p.request
	_, err := a.o.Ledger.Resize(&placement, p.version, false)
	return err
}

// isOverResize reports whether the pod shows that a resize was written. A newer version that does not count for it may
// be one that its kubelet has found infeasible, or another's write beside which the API server tries the resize again.
// a.allowances.mu is held.
func (a *Arbiter) isOverResize(p *allowance) bool {
	pod, ok := a.o.Pods.Pod(p.ref.Namespace, p.ref.Name)
	return ok && pod.Ref.UID == p.ref.UID && pod.ResourceVersion > p.version && covers(pod.Request, p.request)
}

// resizeShownBy is shownBy for a resize: any newer version of the pod shows the outcome, and the ledger counts it.
func (a *Arbiter) resizeShownBy(p *allowance, pod *v1.Pod) gates.Outcome {
	if pod.UID != p.ref.UID {
		return gates.UIDMismatch
	}
	a.allowances.mu.Lock()
	version, written := p.version, a.isWritten(p, pod)
	a.allowances.mu.Unlock()
	if cluster.ParseVersion(pod.ResourceVersion) <= version {
		return gates.Unknown
	}
	a.see(pod)
	if written {
		return gates.Changed
	}
	return gates.Failed
}

// see passes a pod that was read to the ledger.
func (a *Arbiter) see(pod *v1.Pod) {
	if info, err := a.o.Question.Reader.NewPod(pod); err == nil && info.Bound() {
		a.pods.observe(info)
	}
}

// withdrawResize gives back what was granted to a resize that was not written. If it was written, that has been seen by
// now. a.allowances.mu is held.
func (a *Arbiter) withdrawResize(p *allowance) {
	if a.o.Ledger.SettleResize(p.ref, p.version) {
		a.o.Metrics.ObserveDecision("admission", p.scheduler, "withdrawn")
		a.logAllowance(p).WithField("result", "withdrawn").
			Info("an allowed resize did not happen; its capacity was given back")
	}
}
