package schedulerplugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The pauses between looks at a pod that was woken and may preempt others: each twice as long as the one before.
const (
	firstLook = 100 * time.Millisecond
	mostLook  = 30 * time.Second
	// looks is how often it is looked at where no node is nominated for it: for 3.1 s, by which the scheduler's
	// own write of the nomination has come back.
	looks = 5
)

// activator wakes pods in the scheduler's own queue. It is a requeue.Patcher:
// an annotation is how the pods of other schedulers are woken.
//
// A pod that has preempted others is woken more than once. The ledger often sees a victim's end before the
// scheduler's cache does. A pod that is tried in between preempts the same victim again, and kube-scheduler keeps
// it from its queue until that is done; it finds the victim gone, and forgets to let the pod in again (its flush
// does, after five minutes). So such a pod is given a moment, and woken again until it is bound or gives its node up.
type activator struct {
	handle fwk.Handle
	pods   corelisters.PodLister
	log    klog.Logger
	// first is called with each pod before it is woken.
	first func(*v1.Pod)
	// woken are the pods to look at again.
	woken workqueue.TypedRateLimitingInterface[look]
}

// look is a look at a pod that was woken before.
type look struct {
	pod ledger.PodRef
	// owed: it was given a moment, and is to be woken whatever has become of it.
	owed bool
}

func newActivator(handle fwk.Handle, pods corelisters.PodLister, first func(*v1.Pod), log klog.Logger) *activator {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[look](firstLook, mostLook)
	return &activator{
		handle: handle, pods: pods, first: first, log: log,
		woken: workqueue.NewTypedRateLimitingQueue(limiter),
	}
}

// Annotate implements requeue.Patcher.
func (a *activator) Annotate(_ context.Context, ref ledger.PodRef, _ map[string]string) error {
	pod, err := a.pending(ref)
	if err != nil {
		return err
	}
	a.first(pod)
	switch {
	case ptr.Deref(pod.Spec.PreemptionPolicy, "") == v1.PreemptNever:
		a.activate(pod)
	case pod.Status.NominatedNodeName == "":
		a.activate(pod)
		a.again(ref)
	default:
		a.woken.AddAfter(look{pod: ref, owed: true}, firstLook)
	}
	return nil
}

// again looks at a pod from now on, with pauses that begin anew.
func (a *activator) again(ref ledger.PodRef) {
	a.woken.Forget(look{pod: ref})
	a.woken.AddRateLimited(look{pod: ref})
}

// run looks again at pods that were woken, until ctx ends.
func (a *activator) run(ctx context.Context) {
	defer context.AfterFunc(ctx, a.woken.ShutDown)()
	for {
		next, stopped := a.woken.Get()
		if stopped {
			return
		}
		a.look(next)
		a.woken.Done(next)
	}
}

func (a *activator) look(at look) {
	pod, err := a.pending(at.pod)
	switch {
	case err != nil:
		a.woken.Forget(at)
	case at.owed:
		a.activate(pod)
		a.again(at.pod)
	case pod.Status.NominatedNodeName != "":
		a.activate(pod)
		a.woken.AddRateLimited(at)
	case a.woken.NumRequeues(at) < looks:
		a.woken.AddRateLimited(at)
	default:
		a.woken.Forget(at)
	}
}

// pending returns a pod that is not bound.
func (a *activator) pending(ref ledger.PodRef) (*v1.Pod, error) {
	pod, err := a.pods.Pods(ref.Namespace).Get(ref.Name)
	if err != nil {
		return nil, err
	}
	if pod.UID != ref.UID || pod.Spec.NodeName != "" {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), ref.Name)
	}
	return pod, nil
}

// activate puts a pod at the head of the queue. A pod that is being looked at right now is tried once more after that.
func (a *activator) activate(pod *v1.Pod) {
	a.handle.Activate(a.log, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
}
