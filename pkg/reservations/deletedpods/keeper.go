package deletedpods

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// slotName is the name of the one slot of a Reservation that keeps the capacity of a deleted pod.
const slotName = "deleted-pod"

// podUIDAnnotation is on such a Reservation: the UID of the pod.
const podUIDAnnotation = "globalreserve.io/deleted-pod-uid"

// Options configures a Keeper. All fields are needed.
type Options struct {
	Ledger *gates.GatedLedger
	Store  *store.Store
	// Matcher knows which reservations pods may use. Matched is then called with the namespace of those pods.
	Matcher     *placement.Matcher
	Matched     func(namespace string)
	Deployments *Deployments
	// Policy says whether capacity is kept, and for how long.
	Policy *policy.Store
	// Serving reports whether Reservation objects can be created; while they cannot, no capacity is kept.
	Serving func() bool
	// Taken reports whether there is a Reservation of a name already, as far as is known.
	Taken func(namespace, name string) bool
	// Recorder gets Events on the deleted pods.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// Keeper keeps the capacity of deleted pods; see the package comment. Make one with
// New; it can run once. Its Keep is one of cluster.Options.
type Keeper struct {
	Options
	queue  *informer.Queue[types.NamespacedName]
	events *informer.Events

	mu     sync.Mutex // guards what follows
	tasks  map[types.NamespacedName]*task
	missed []missedPod // in the order they ended
	leads  bool        // TakeOver was called
}

// Events beyond these are left out.
const (
	eventsPerSecond = 20
	eventBurst      = 100
)

// task is a slot whose object is to be created. Only the worker that has its key changes it.
type task struct {
	pod   *cluster.Pod
	slot  ledger.Slot
	wish  wish
	ttl   time.Duration
	rsv   *v1alpha1.Reservation
	write apiwrite.Write // of the object, under the name that the slot has
}

// New returns a Keeper that does not run.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, tasks: map[types.NamespacedName]*task{},
		events: informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst),
		queue: informer.NewQueue[types.NamespacedName](informer.QueueOptions[types.NamespacedName]{
			Name: "keeping the capacity of a deleted pod", Workers: workers, RetryFirst: retryFirst, RetryMost: retryMost,
			NamespaceOf: func(key types.NamespacedName) string { return key.Namespace }, Log: o.Log,
		}),
	}
}

// Run watches Deployments and creates objects until ctx ends. Slots without an object are lost with the process.
func (k *Keeper) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { k.Deployments.run(ctx) })
	return k.queue.Run(ctx, k.work)
}

// enabled reports whether the capacity of pods is kept at all.
func (k *Keeper) enabled() bool { return k.Serving() && k.Policy.KeepsDeletedPods() }

// Keep is cluster.Options.Keep.
func (k *Keeper) Keep(last *cluster.Pod) (slot ledger.Slot, told func(refused *ledger.Rejection), keep bool) {
	if k.miss(last) || !k.enabled() {
		return ledger.Slot{}, nil, false
	}
	if _, holds := k.Ledger.Allocation(last.Ref); !holds {
		return ledger.Slot{}, nil, false // it ended before: one that finishes while it is deleted ends twice
	}
	t, complaints, keep := k.newTask(last, k.deploymentOf(last), k.Ledger.Clock.Now())
	if !keep {
		return ledger.Slot{}, nil, false
	}
	return t.slot, func(refused *ledger.Rejection) {
		if refused != nil {
			k.warn(last, reasonNotKept, refused.Message())
			return
		}
		k.begin(t, complaints)
	}, true
}

// newTask returns what is to be kept of a pod that ended at a time. complaints are about its ttls.
func (k *Keeper) newTask(last *cluster.Pod, deployment *cluster.Annotations,
	ended time.Time,
) (t *task, complaints []string, keep bool) {
	w, keep := wishOf(last, deployment)
	if !keep {
		return nil, nil, false
	}
	t = &task{pod: last, wish: w}
	t.ttl, complaints = k.chooseTTL(last.Scheduler, w.ttls)
	name := last.Ref.Name
	if k.isTaken(last.Ref.Namespace, name) {
		if name = suffixed(last); k.isTaken(last.Ref.Namespace, name) {
			k.warn(last, reasonNotKept, allTaken)
			return nil, nil, false
		}
	}
	t.slot = k.newSlot(last, name, convert.DeadlineAfter(ended, t.ttl))
	t.slot.AvailableAt = k.Ledger.Clock.WallAt(ended)
	if err := k.Ledger.RefuseSlot(&t.slot); err != nil {
		k.warn(last, reasonNotKept, err.Error())
		return nil, nil, false
	}
	return t, complaints, true
}

// begin queues the writing of the object for a slot that is in the ledger.
func (k *Keeper) begin(t *task, complaints []string) {
	k.remember(t)
	for _, complaint := range complaints {
		k.warn(t.pod, reasonInvalidTTL, complaint)
	}
}

// deploymentOf returns what is known of the Deployment of a pod.
func (k *Keeper) deploymentOf(pod *cluster.Pod) *cluster.Annotations {
	if pod.Controller.Kind != kindDeployment {
		return nil
	}
	return k.Deployments.marks(pod.Ref.Namespace, pod.Controller.Name)
}

// isTaken reports whether a name is that of a Reservation, or of one about to be.
func (k *Keeper) isTaken(namespace, name string) bool {
	return k.Taken(namespace, name) || len(k.Ledger.ReservationSlots(namespace, name)) > 0
}

func (k *Keeper) newSlot(pod *cluster.Pod, name string, deadline time.Time) ledger.Slot {
	slot := ledger.Slot{
		Ref:     ledger.SlotRef{Namespace: pod.Ref.Namespace, Name: name, Slot: slotName},
		Node:    pod.Node,
		Request: k.Ledger.BesidesDRA(pod.Node, pod.Request), Policy: ledger.Once, Scheduler: pod.Scheduler,
		Caller: pod.Caller, Priority: pod.Priority, Deadline: deadline,
	}
	if consumersOf(pod) == nil {
		slot.Pod = ledger.PodRef{Namespace: pod.Ref.Namespace, Name: pod.Ref.Name}
	}
	return slot
}

// remember makes a slot known to pods and puts its object into the queue.
func (k *Keeper) remember(t *task) {
	// The pod's devices are kept for no claim in particular: its own claim is free for the pod that comes after it,
	// which is given those devices first.
	if view, ok := k.held(t); ok {
		t.slot.Request, t.slot.Devices = view.Request, convert.WithGiven(view.Devices, view.Given)
	}
	t.rsv = k.newObject(t)
	if err := k.Matcher.Set(t.rsv); err != nil {
		k.log(t).WithError(err).Warn("no pod can match the capacity of a deleted pod")
	}
	k.Matched(t.rsv.Namespace)
	k.log(t).WithFields(logrus.Fields{"node": t.slot.Node, "ttl": t.ttl.String()}).
		Info("the capacity of a deleted pod is kept")
	key := t.key()
	k.mu.Lock()
	k.tasks[key] = t // a worker's from here on
	k.mu.Unlock()
	k.queue.Add(key)
}

func (t *task) key() types.NamespacedName {
	return types.NamespacedName{Namespace: t.slot.Ref.Namespace, Name: t.slot.Ref.Name}
}

func (k *Keeper) newObject(t *task) *v1alpha1.Reservation {
	rsv := convert.Object(k.Ledger.Table(), []ledger.Slot{t.slot}, t.ttl, convert.MadeByDeletedPod)
	rsv.Spec.Consumers = consumersOf(t.pod)
	rsv.Annotations[podUIDAnnotation] = string(t.pod.Ref.UID)
	if t.wish.godel {
		rsv.Annotations[v1alpha1.GodelReservationAnnotation] = "true"
	}
	// For the order among reservations until the API server gives its own.
	rsv.CreationTimestamp = metav1.NewTime(k.Ledger.Clock.Wall().Truncate(time.Second))
	return rsv
}

func (k *Keeper) log(t *task) logrus.FieldLogger {
	return k.Log.WithFields(logrus.Fields{
		"pod": t.pod.Ref.String(), "uid": string(t.pod.Ref.UID), "reservation": t.key().String(),
	})
}
