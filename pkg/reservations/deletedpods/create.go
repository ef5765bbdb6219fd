package deletedpods

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// How the objects are written: at most workers at once, one try in at most
// tryTimeout, and again after pauses that grow.
const (
	workers    = 8
	tryTimeout = 10 * time.Second
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// The reasons of Events on deleted pods.
const (
	reasonInvalidTTL = "InvalidReservationTTL"
	reasonNotKept    = "RoomNotKept"
)

func (k *Keeper) work(ctx context.Context) {
	for {
		key, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		k.mu.Lock()
		t := k.tasks[key]
		k.mu.Unlock()
		if t == nil || k.try(ctx, t) {
			k.mu.Lock()
			delete(k.tasks, key)
			k.mu.Unlock()
			k.queue.Forget(key)
		} else {
			k.queue.AddRateLimited(key)
		}
		k.queue.Done(key)
	}
}

// try brings one object about and reports whether there is nothing left to do.
func (k *Keeper) try(ctx context.Context, t *task) bool {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if held, _ := k.held(t); !held {
		k.forget(t)
		return true
	}
	if t.wish.byDeployment {
		marks, err := k.Deployments.live(ctx, t.pod.Ref.Namespace, t.pod.Controller.Name)
		if err != nil {
			k.log(t).WithError(err).Warn("could not look at the Deployment of a deleted pod; will try again")
			return false
		}
		if !k.confirm(t, marks) {
			return true
		}
	}
	return k.create(ctx, t)
}

// confirm takes the live annotations of the Deployment for those that count. It
// returns false where they do not ask for the room any more, which is given back.
func (k *Keeper) confirm(t *task, marks *podinfo.Marks) bool {
	w, keep := wishOf(t.pod, marks)
	if !keep {
		k.giveBack(t)
		k.log(t).Info("the Deployment does not ask for the room of its deleted pods any more: given back")
		return false
	}
	ttl, complaints := k.chooseTTL(t.pod.Scheduler, w.ttls)
	if ttl != t.ttl {
		for _, complaint := range complaints {
			k.warn(t.pod, reasonInvalidTTL, complaint)
		}
		t.hold.Deadline = t.hold.Deadline.Add(ttl - t.ttl)
		t.ttl = ttl
		t.rsv.Spec.TTL = &metav1.Duration{Duration: ttl}
		k.Ledger.SetHoldDeadline(t.hold.Ref.Namespace, t.hold.Ref.Name, t.hold.Deadline)
	}
	t.wish = w
	t.wish.byDeployment = false
	return true
}

// create writes the object and reports whether there is nothing left to do.
func (k *Keeper) create(ctx context.Context, t *task) bool {
	rsv := t.rsv.DeepCopy()
	rsv.CreationTimestamp = metav1.Time{}
	_, err := k.Store.Create(ctx, rsv)
	switch store.Classify(err) {
	case store.Done:
		return true
	case store.Exists:
		return k.nameTaken(ctx, t)
	case store.Refused, store.Missing:
		k.giveBack(t)
		k.log(t).WithError(err).Warn("the room of a deleted pod could not be kept")
		k.warn(t.pod, reasonNotKept, "the Reservation for the room of this pod was refused: "+err.Error())
		return true
	default:
		k.log(t).WithError(err).Warn("could not create the Reservation for the room of a deleted pod; will try again")
		return false
	}
}

// nameTaken finds out whose object has the name: the one written by an earlier
// try, or another's, which the hold then leaves the name to.
func (k *Keeper) nameTaken(ctx context.Context, t *task) bool {
	other, err := k.Store.Get(ctx, t.hold.Ref.Namespace, t.hold.Ref.Name)
	switch {
	case store.Classify(err) == store.Missing:
		return false // gone meanwhile
	case err != nil:
		k.log(t).WithError(err).Warn("could not look at the Reservation that has the name of a deleted pod; will try again")
		return false
	case other.Labels[convert.MadeByLabel] == convert.MadeByDeletedPod && other.Annotations[PodUIDAnnotation] == string(t.pod.Ref.UID):
		return true
	case t.hold.Ref.Name == suffixed(t.pod):
		k.giveBack(t)
		k.warn(t.pod, reasonNotKept, "there are Reservations of all names that the one for the room of this pod could have")
		return true
	default:
		return k.rename(t)
	}
}

// rename moves the hold to the name that has the pod's UID in it. The new hold
// is there before the old one goes: for a moment the room counts twice and
// nobody can take it. It always reports that the old name's task is done, unless
// a pod is being bound with the hold.
func (k *Keeper) rename(t *task) bool {
	if held, used := k.held(t); !held || used {
		return !held
	}
	moved := *t
	moved.hold.Ref.Name = suffixed(t.pod)
	k.Ledger.ObserveHold(moved.hold)
	k.remember(&moved)
	k.giveBack(t)
	return true
}

// held reports whether the hold is still there, and whether a pod uses it.
func (k *Keeper) held(t *task) (held, used bool) {
	for _, view := range k.Ledger.ReservationHolds(t.hold.Ref.Namespace, t.hold.Ref.Name) {
		if view.Ref == t.hold.Ref {
			return true, len(view.Consumers) > 0
		}
	}
	return false, false
}

// giveBack ends the hold of a task.
func (k *Keeper) giveBack(t *task) {
	k.Ledger.ReleaseHolds(t.hold.Ref.Namespace, t.hold.Ref.Name, t.hold.Ref.Slot)
	k.forget(t)
}

// forget takes back what the matcher was told, unless there is an object of that
// name, for which it was told by others.
func (k *Keeper) forget(t *task) {
	if !k.Taken(t.hold.Ref.Namespace, t.hold.Ref.Name) {
		k.Matcher.Remove(t.hold.Ref.Namespace, t.hold.Ref.Name)
	}
}

// warn writes an Event on a deleted pod.
func (k *Keeper) warn(pod *podinfo.Info, reason, note string) {
	if k.Recorder == nil {
		return
	}
	k.Recorder.Eventf(podReference(pod.Ref), nil, v1.EventTypeWarning, reason, "KeepRoom", "%s", note)
}

func podReference(pod ledger.PodRef) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
