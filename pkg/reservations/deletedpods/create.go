package deletedpods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
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
	reasonNotKept    = "CapacityNotKept"
)

const allTaken = "there are Reservations of all names that the one for the capacity of this pod could have"

// Reasons to try again that no call has an error for.
var (
	errLater = errors.New("the object that had the name is gone again")
	errInUse = errors.New("a pod is being bound with the capacity")
)

// work creates the object of a task. After an error the queue tries again.
func (k *Keeper) work(ctx context.Context, key types.NamespacedName) error {
	k.mu.Lock()
	t := k.tasks[key]
	k.mu.Unlock()
	if t == nil {
		return nil
	}
	if err := k.try(ctx, t); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tasks[key] == t { // else another pod of the name has gone meanwhile, and its object is still to be written
		delete(k.tasks, key)
	}
	return nil
}

// try creates the object of a task. An error means that there is something left to do.
func (k *Keeper) try(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if _, held := k.held(t); !held {
		k.forget(t)
		return nil
	}
	return k.create(ctx, t)
}

// create writes the object. An error means that it has to be tried again. This is where a write of unknown fate
// is settled: by writing again until there is an object of the name, and then by looking whose it is.
func (k *Keeper) create(ctx context.Context, t *task) error {
	rsv := t.rsv.DeepCopy()
	rsv.CreationTimestamp = metav1.Time{}
	_, err := k.Store.Create(ctx, rsv)
	said := apiwrite.Of("reservations", err)
	t.write.Sent(k.Ledger.Clock.Now(), said)
	switch said {
	case apiwrite.Done:
		return nil
	case apiwrite.Exists:
		return k.nameTaken(ctx, t)
	case apiwrite.Refused, apiwrite.Missing:
		if !informer.LacksRight(err) {
			return k.refused(ctx, t, err)
		}
	}
	return fmt.Errorf("creating the Reservation: %w", err)
}

// refused gives back the capacity whose object is refused. An earlier try may have made it though its answer was lost:
// a quota counts that object, and then refuses the same one for it.
func (k *Keeper) refused(ctx context.Context, t *task, cause error) error {
	if t.write.InDoubt() {
		found, err := k.Store.Get(ctx, t.slot.Ref.Namespace, t.slot.Ref.Name)
		switch {
		case err == nil && t.made(found):
			return nil
		case err != nil && apiwrite.Of("reservations", err) != apiwrite.Missing:
			return fmt.Errorf("looking for a Reservation that may have been made: %w", err)
		case err != nil && !t.write.Over(k.Ledger.Clock.Now(), store.Settle):
			return fmt.Errorf("a Reservation may be in the making: %w", cause)
		}
	}
	k.release(t)
	k.log(t).WithError(cause).Warn("the capacity of a deleted pod could not be kept")
	k.warn(t.pod, reasonNotKept, "the Reservation for the capacity of this pod was refused: "+cause.Error())
	return nil
}

// made reports whether an object is that of the task.
func (t *task) made(object *v1alpha1.Reservation) bool {
	return object.Labels[convert.MadeByLabel] == convert.MadeByDeletedPod &&
		object.Annotations[podUIDAnnotation] == string(t.pod.Ref.UID)
}

// nameTaken finds out whose object has the name: that of an earlier try, or another one. The slot leaves the name to
// another one.
func (k *Keeper) nameTaken(ctx context.Context, t *task) error {
	other, err := k.Store.Get(ctx, t.slot.Ref.Namespace, t.slot.Ref.Name)
	switch {
	case apiwrite.Of("reservations", err) == apiwrite.Missing:
		return errLater
	case err != nil:
		return fmt.Errorf("looking at the Reservation that has the name: %w", err)
	case t.made(other):
		return nil
	case t.slot.Ref.Name == suffixed(t.pod):
		k.release(t)
		k.warn(t.pod, reasonNotKept, allTaken)
		return nil
	default:
		return k.rename(t)
	}
}

// rename moves the slot to the name that has the pod's UID in it. The new slot is there before the old one goes: for a
// moment the capacity counts twice and nobody can take it. While a pod is being bound with the slot, that has to wait.
func (k *Keeper) rename(t *task) error {
	switch view, held := k.held(t); {
	case !held:
		return nil
	case len(view.Consumers) > 0:
		return errInUse
	}
	moved := *t
	moved.slot.Ref.Name, moved.write = suffixed(t.pod), apiwrite.Write{}
	k.Ledger.ObserveSlot(moved.slot)
	k.remember(&moved)
	k.release(t)
	return nil
}

// held returns the slot, if it is still there.
func (k *Keeper) held(t *task) (view ledger.SlotView, ok bool) {
	views := k.Ledger.ReservationSlots(t.slot.Ref.Namespace, t.slot.Ref.Name)
	i := slices.IndexFunc(views, func(v ledger.SlotView) bool { return v.Ref == t.slot.Ref })
	if i < 0 {
		return view, false
	}
	return views[i], true
}

// release ends the slot of a task.
func (k *Keeper) release(t *task) {
	k.Ledger.ReleaseSlots(t.slot.Ref.Namespace, t.slot.Ref.Name, t.slot.Ref.Slot)
	k.forget(t)
}

// forget removes the reservation from the matcher, unless there is an object of that name: others have set that one in
// the matcher.
func (k *Keeper) forget(t *task) {
	if !k.Taken(t.slot.Ref.Namespace, t.slot.Ref.Name) {
		k.Matcher.Remove(t.slot.Ref.Namespace, t.slot.Ref.Name)
	}
}

// warn writes an Event on a deleted pod.
func (k *Keeper) warn(pod *cluster.Pod, reason, note string) {
	k.events.Tell(informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID), v1.EventTypeWarning, reason,
		"KeepCapacity", note)
}
