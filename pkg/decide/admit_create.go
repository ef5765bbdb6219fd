package decide

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// Records are the annotations that record what a pod was given, and its caller. In an object under review only
// GlobalReserve writes them. The policy globalreserve-records allows them on Bindings and on pods created with a node.
var Records = []string{
	v1alpha1.CallerAnnotation, v1alpha1.ExtendedResourcesAnnotation,
	v1alpha1.MatchedReservationAnnotation, v1alpha1.MatchedReservationUIDAnnotation,
	v1alpha1.RedirectedFromAnnotation,
}

const (
	// failedShare bounds what creations that never happen can keep, whatever their sender does. For a namespace that is
	// as many pods as a tenth of the nodes, and maxFailed at most, for a tenth of the time.
	failedShare, maxFailed = 10, 5
	// callerShare bounds what a caller creates in all namespaces together: as many pods as a quarter of the nodes, and
	// maxFailed of four namespaces at most.
	callerShare = 4
	// failedPause is how long a namespace waits after a creation that never happened.
	failedPause = (failedShare - 1) * createGrace
	// seenSoon is the age from which a creation that is not seen may be one that never happens. Until then a request for
	// more than a share waits for it, burstWait at most, and maxBursting at a time. The webhook has 5s to answer.
	seenSoon, burstWait, burstPause, maxBursting = time.Second, 2 * time.Second, 10 * time.Millisecond, 64
	// maxLooked is for how many creations the API server is asked, so that one more may be allowed.
	maxLooked = 8
)

// PlanPod says what a pod that a user is about to create on a node would be given. The pod is what the API server has
// before it fills in and checks anything, without the node. Nothing is granted, as the API server may refuse or change
// the pod. AdmitPod asks for the annotations that PlanPod returns. The errors are those of AdmitBinding.
func (a *Arbiter) PlanPod(ctx context.Context, pod *v1.Pod, node, user string, dryRun bool) (Admitted, error) {
	return a.admitPod(ctx, pod, &admission{node: node, create: true, plan: true}, user, dryRun)
}

// AdmitPod decides whether a user may create a pod on a node. The pod is what the API server is about to write, with
// its UID, and without the node. Its annotations have to record what is granted, as PlanPod said. What is granted stays
// so until it is known whether the pod was created; see allowance. Its errors are those of AdmitBinding.
func (a *Arbiter) AdmitPod(ctx context.Context, pod *v1.Pod, node, user string, dryRun bool) (Admitted, error) {
	return a.admitPod(ctx, pod, &admission{node: node, create: true, told: pod.Annotations}, user, dryRun)
}

func (a *Arbiter) admitPod(ctx context.Context, pod *v1.Pod, k *admission, user string, dryRun bool) (Admitted, error) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	ref := ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	plain := *pod
	plain.Annotations, plain.Status = maps.Clone(pod.Annotations), v1.PodStatus{} // a new pod has no status
	for _, record := range Records {
		delete(plain.Annotations, record)
	}
	info, err := a.o.Question.Reader.NewPod(&plain)
	if err != nil {
		return Admitted{}, &UncountableError{Cause: err}
	}
	taken, err := a.pods.exists(ctx, ref, a.allowances.creates(ref))
	switch {
	case err != nil:
		return Admitted{Pod: info}, err
	case taken:
		return Admitted{Pod: info}, &gates.Error{Outcome: gates.NameTaken, Pod: ref, Node: k.node}
	}
	k.pod, k.nodes = info.WithCaller(user), a.o.Ledger.Stats().Nodes
	return a.admit(ctx, k, dryRun)
}

// isTold reports whether the annotations of a pod that is being created record what it is granted. What PlanPod said
// may have been given to others since, or another webhook may have written something else. Where refusals are only
// warnings pods get no such annotations.
func (a *Arbiter) isTold(k *admission, grant *ledger.Grant) bool {
	granted := a.tell(k, grant)
	return a.o.AdmissionWarns || !slices.ContainsFunc(Records,
		func(record string) bool { return k.told[record] != granted[record] })
}

// beginCreation returns why a pod may not be created with a node now. Where it may be, beginCreation ends what another
// scheduler has reserved for a pod of the name. a.allowances.mu is held.
func (a *Arbiter) beginCreation(k *admission) error {
	if err := a.overShare(k); err != nil {
		return err
	}
	grant, err := a.tryOut(k) // a refused creation ends nothing that is kept for its name
	switch {
	case err != nil:
		return err
	case !a.isTold(k, &grant):
		return &gates.Error{Outcome: gates.NotAnnotated, Pod: k.pod.Ref, Node: k.node}
	}
	byName := *k.pod
	byName.Ref.UID = "" // it may never be
	cluster.ObserveUnbound(a.o.Ledger.Observer(), a.o.Log, &byName)
	return nil
}

// overShare returns an error where the creations that may never happen keep as much as a namespace, or a caller, may
// keep that way. a.allowances.mu is held.
func (a *Arbiter) overShare(k *admission) error {
	e := &gates.Error{Outcome: gates.Busy, Pod: k.pod.Ref, Node: k.node, Create: true}
	namespace := k.pod.Ref.Namespace
	if until, ok := a.allowances.failed[namespace]; ok && time.Now().Before(until) {
		e.Why = fmt.Sprintf("a pod was to be created with a node in namespace %s and never was (its quota or another "+
			"webhook refused it?), and kept its capacity for %s; the next may be created at %s",
			namespace, createGrace, until.UTC().Format(time.RFC3339))
		return e
	}
	inNamespace := a.unseen(func(p *allowance) bool { return p.ref.Namespace == namespace && p.ref != k.pod.Ref })
	ofCaller := a.unseen(func(p *allowance) bool { return p.caller == k.pod.Caller && p.ref != k.pod.Ref })
	const which = "pods of %s that were allowed to be created with a node are not there yet: %d, which is its share"
	switch {
	case len(inNamespace) >= min(max(1, k.nodes/failedShare), maxFailed):
		k.beside, e.Why = inNamespace, fmt.Sprintf(which, "namespace "+namespace, len(inNamespace))
	// One failure in a namespace does not stop the caller in the others.
	case len(ofCaller) >= min(max(2, k.nodes/callerShare), 4*maxFailed):
		k.beside, e.Why = ofCaller, fmt.Sprintf(which, k.pod.Caller, len(ofCaller))
	default:
		return nil
	}
	return e
}

// unseen returns those of the creations that may never happen for which wanted is true. a.allowances.mu is held.
func (a *Arbiter) unseen(wanted func(*allowance) bool) (unseen []*allowance) {
	for _, p := range a.allowances.of {
		if p.create && wanted(p) && !a.isOver(p) {
			unseen = append(unseen, p)
		}
	}
	return unseen
}

// awaitCreated waits until one of the creations that fill a share (admission.beside) is seen, as most are within
// milliseconds, and reports whether one is.
func (a *Arbiter) awaitCreated(ctx context.Context, k *admission, until time.Time) bool {
	if len(k.beside) == 0 {
		return false
	}
	defer a.bursting.Add(-1)
	if a.bursting.Add(1) > maxBursting {
		return false
	}
	for time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(burstPause):
		}
		over, soon := a.look(k.beside)
		if over || !soon {
			return over
		}
	}
	return false
}

// look reports whether one of some creations is over, and whether one may still be seen soon.
func (a *Arbiter) look(beside []*allowance) (over, soon bool) {
	a.allowances.mu.Lock()
	defer a.allowances.mu.Unlock()
	for _, p := range beside {
		over = over || a.isOver(p)
		soon = soon || time.Since(p.allowed) < seenSoon
	}
	return over, soon
}

// lookForCreated asks the API server for the creations that fill a share (admission.beside), as the watch may be
// behind. It reports whether one of their pods is there.
func (a *Arbiter) lookForCreated(ctx context.Context, k *admission) bool {
	for _, p := range k.beside[:min(len(k.beside), maxLooked)] {
		if _, err := a.pods.read(ctx, p.ref, 0); err == nil { // read passes it to the ledger
			return true
		}
	}
	return false
}
