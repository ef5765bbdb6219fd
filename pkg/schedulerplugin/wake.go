package schedulerplugin

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// maxAwaiting bounds the pods remembered that wait for the ledger. Those beyond it wait for the scheduler's own retry.
const maxAwaiting = 100_000

// waker wakes pods that the plugin refused. pkg/requeue finds out what capacity was freed, and which pods fit it, as
// for the pods of schedulers elsewhere; here the pods only have to be taken to the head of the scheduler's queue, which
// is one for all profiles.
type waker struct {
	waiting *requeue.Pods
	queue   *activator
	server  *server
	pods    cache.SharedIndexInformer
	ctx     context.Context // ends with stop
	cancel  context.CancelFunc
	done    sync.WaitGroup // of again

	mu       sync.Mutex                 // guards what follows
	awaiting map[types.UID]*cluster.Pod // that decisions can be made
	races    map[types.UID]int          // lost in a row, by pod
	due      map[types.UID]time.Time    // when the pods are woken that wait for a pause

	holds holds // of gangs
}

// The pauses of a pod that Filter keeps offering what Reserve refuses: none after the
// first time, then each twice as long as the one before.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

// pauseAfter is how long a pod waits that has lost so many races in a row, of which the last one for a reason. A limit
// is no race, nor is what a gang lacks: Filter looks at one pod, and goes on offering nodes for what a gang is refused.
func pauseAfter(reason ledger.Reason, races int) time.Duration {
	switch {
	case reason.OfLimit(), reason.OfGang():
		return mostPause
	case races <= 1:
		return 0
	}
	return min(firstPause<<min(races-2, 10), mostPause)
}

func newWaker(ctx context.Context, s *server, handle fwk.Handle, log logrus.FieldLogger) *waker {
	informer := handle.SharedInformerFactory().Core().V1().Pods()
	w := &waker{
		server: s, pods: informer.Informer(),
		awaiting: map[types.UID]*cluster.Pod{}, races: map[types.UID]int{}, due: map[types.UID]time.Time{},
		holds: holds{held: map[kinds.Key]*hold{}},
	}
	w.queue = newActivator(handle, informer.Lister(), w.woken, klog.FromContext(ctx))
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.waiting = requeue.New(requeue.Options{
		Ledger: s.ledger, Gates: s.gates, Question: s.question, Patcher: w.queue, Log: log,
	})
	return w
}

func (w *waker) start() {
	w.done.Go(func() { _ = w.waiting.Run(w.ctx) })
	w.done.Go(func() { w.queue.run(w.ctx) })
	if _, err := w.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: w.updated,
		DeleteFunc: w.deleted,
	}); err != nil {
		w.waiting.Log.WithError(err).Warn("Pods whose claims of devices are changed wait for the scheduler's own retry")
	}
}

func (w *waker) stop() {
	w.mu.Lock()
	w.cancel() // whoever holds mu later sees that, and begins nothing
	w.mu.Unlock()
	w.done.Wait()
}

// updated forgets a pod that is bound, and wakes one that waits and names other claims of devices now: to the
// scheduler a changed annotation is no event.
func (w *waker) updated(before, after any) {
	was, ok := before.(*v1.Pod)
	now, same := after.(*v1.Pod)
	if ok && same && was.Spec.NodeName == "" && now.Spec.NodeName != "" {
		w.forget(now.UID)
	}
	const claims = v1alpha1.ExtendedResourceClaimsAnnotation
	if !ok || !same || now.Spec.NodeName != "" || was.Annotations[claims] == now.Annotations[claims] {
		return
	}
	if info, err := w.server.question.Reader.NewPod(now); err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.due, now.UID) // it may be due before the queue has the change
		w.wakeAfter(info, afterUpdate)
	}
}

// deleted forgets a pod.
func (w *waker) deleted(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if pod, ok := obj.(*v1.Pod); ok {
		w.forget(pod.UID)
	}
}

// forget ends the wait of a pod. While another scheduler has the ledger, all pods come here, and go without this
// one's doing.
func (w *waker) forget(pod types.UID) {
	w.settled(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.awaiting, pod)
}

// afterUpdate is how long the scheduler's queue has to receive a change of a pod itself.
const afterUpdate = 100 * time.Millisecond

// wakeAfter wakes a pod once a pause is over, if that is not due before anyway: an attempt calls it again, and where
// the pod is tried for other reasons, too, attempts would add up. w.mu is held.
func (w *waker) wakeAfter(pod *cluster.Pod, pause time.Duration) {
	now := time.Now()
	due, before := now.Add(pause), w.due[pod.Ref.UID]
	if w.ctx.Err() != nil || before.After(now) && !due.Before(before) {
		return
	}
	w.due[pod.Ref.UID] = due
	w.done.Go(func() {
		if informer.Pause(w.ctx, pause) && w.isDue(pod.Ref.UID, due) {
			w.waiting.Wake(pod)
		}
	})
}

// isDue reports whether a pod is still to be woken for a moment, and forgets that.
func (w *waker) isDue(pod types.UID, moment time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	still := w.due[pod].Equal(moment)
	if still {
		delete(w.due, pod)
	}
	return still
}

// settled forgets a pod: it has capacity.
func (w *waker) settled(pod types.UID) {
	w.waiting.Settled(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.races, pod)
}

// await registers a pod to be woken when decisions can be made.
func (w *waker) await(pod *cluster.Pod) {
	w.mu.Lock()
	if len(w.awaiting) < maxAwaiting {
		w.awaiting[pod.Ref.UID] = pod
	}
	w.mu.Unlock()
	w.wakeIfReady() // it may have come to be so before the pod was added
}

// wakeIfReady wakes the pods that wait for decisions, if these can be made.
func (w *waker) wakeIfReady() {
	if !w.server.deciding() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range w.awaiting {
		w.waiting.Wake(pod)
	}
	clear(w.awaiting)
}

// again wakes a pod that was refused at Reserve for a reason. Where it keeps losing, Filter and Reserve do not see the
// same; then it waits longer and longer, besides the scheduler's own back-off, and for capacity to be freed.
func (w *waker) again(pod *cluster.Pod, reason ledger.Reason, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.races) >= maxAwaiting {
		clear(w.races)
	}
	w.races[pod.Ref.UID]++
	w.wakeAfter(pod, max(pause, pauseAfter(reason, w.races[pod.Ref.UID])))
}

// lost reports whether a pod has lost the last race for capacity.
func (w *waker) lost(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.races[pod] > 0
}
