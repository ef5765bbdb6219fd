package gang

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/fates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// durableWrite is one durable gang that is not a dry run.
//
// The object's name makes a repeated create harmless. As long as the fate of a create is
// not known, the object is read back and the create sent again, until the object is known
// to be there. When the deadline is over first, the scheduler is told that nothing was
// reserved, and the capacity stays kept until it is certain that no object says otherwise.
type durableWrite struct {
	*gangAttempt
	fates.Write
	a        *Arbiter
	deadline time.Time
	leave    func()
	// stored is the object that is there, as far as is known; created that this request made it.
	stored  *v1alpha1.Reservation
	created bool
}

// run decides the gang and writes it down.
func (w *durableWrite) run(ctx context.Context) (*Decision, error) {
	why, err := w.settleOthers(ctx)
	switch {
	case err != nil:
		w.a.giveUp(w.gangAttempt)
		return nil, err
	case why != "":
		w.a.giveUp(w.gangAttempt)
		return w.failed(why), nil
	case len(w.kept) == 0:
		return w.a.conclude(w.gangAttempt, nil), nil
	}
	w.keepSlots()
	return w.write()
}

func (w *durableWrite) failed(why string) *Decision { return w.a.failed("reserve", w.gang, why) }

// keepSlots leaves the object the slots that were made, and says which devices they
// keep: a restart must not choose others.
func (w *durableWrite) keepSlots() {
	slots, given := w.slots(), w.given()
	slices.Sort(slots)
	w.object.Spec.Slots = slices.DeleteFunc(w.object.Spec.Slots, func(s v1alpha1.Slot) bool {
		_, kept := slices.BinarySearch(slots, s.Name)
		return !kept
	})
	for i := range w.object.Spec.Slots {
		slot := &w.object.Spec.Slots[i]
		convert.KeepDevices(slot, given[slot.Name])
	}
}

// given returns the devices that the slots of the object keep.
func (w *durableWrite) given() map[string][]ledger.GivenDevices {
	given := map[string][]ledger.GivenDevices{}
	for _, view := range w.a.o.Ledger.ReservationSlots(w.key.Namespace, w.key.Name) {
		given[view.Ref.Slot] = view.Given
	}
	return given
}

// settleOthers decides the gang, and makes sure that what was reserved for its pods
// already is written down: another request may be writing it, and that may fail. why tells
// what keeps the gang from being decided now; err is for a request that makes no sense.
func (w *durableWrite) settleOthers(ctx context.Context) (why string, err error) {
	for range allotTries {
		if err := w.a.allot(w.gangAttempt); err != nil {
			return "", err
		}
		if why, again := w.settleBinds(ctx); why != "" || again {
			w.a.giveUp(w.gangAttempt)
			if why != "" {
				return why, nil
			}
			continue
		}
		at := slices.IndexFunc(w.others(), func(key types.NamespacedName) bool {
			return key != w.key && w.a.writers.writing(key) != nil
		})
		if at < 0 {
			return w.checkOthers()
		}
		other := w.others()[at]
		w.a.giveUp(w.gangAttempt)
		if !w.a.writers.wait(ctx, other) {
			return notKnownYet(other), nil
		}
	}
	return "nothing was reserved: other requests are reserving capacity for the same pods: try again", nil
}

// settleBinds waits until it is known how the binds under way of the gang's pods end. A bind that fails leaves no
// capacity, and the next server does not know of the bind. again tells that one has failed, why that it is not known in
// time.
func (w *durableWrite) settleBinds(ctx context.Context) (why string, again bool) {
	for _, i := range w.allocated {
		p := &w.placements[i]
		if !w.a.o.Arbiter.AwaitBind(ctx, p.Pod, p.Node) {
			return fmt.Sprintf("nothing was reserved: it is not known yet whether pod %s was bound to node %q: try again", p.Pod,
				p.Node), false
		}
		allocation, ok := w.a.o.Ledger.Allocation(p.Pod)
		again = again || !ok || allocation.Node != p.Node
	}
	return "", again
}

// checkOthers looks the objects up in which pods of the gang have capacity.
func (w *durableWrite) checkOthers() (why string, err error) {
	if w.granted() == 0 {
		return "", nil
	}
	for _, key := range w.others() {
		if key == w.key && len(w.kept) > 0 {
			continue // it is going to be written, and that tells
		}
		object, err := w.a.o.Store.Get(w.a.ctx, key.Namespace, key.Name)
		switch {
		case err == nil && !live(object), fates.Of(reservationsResource, err) == fates.Missing:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, is ending: "+
				"try again", key), nil
		case err != nil:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, could not be "+
				"read: %s", key, err), nil
		case key == w.key && w.gang.RequestID != "" && !sameRequest(object, w.object):
			return "", w.taken()
		}
		switch err := w.answerFor(object); {
		case err != nil:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, could not be "+
				"changed: %s", key, err), nil
		case !live(object):
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, is ending: "+
				"try again", key), nil
		}
	}
	return "", nil
}

// live reports whether an object still keeps capacity.
func live(object *v1alpha1.Reservation) bool {
	return convert.Granted(object) && object.DeletionTimestamp == nil
}

// taken refuses a gang because an object of its name is there.
func (w *durableWrite) taken() error {
	if w.gang.Name == "" {
		return ErrRequestIDUsed(w.gang.RequestID)
	}
	return &RequestError{Conflict: true, Message: fmt.Sprintf("there is another reservation %s: choose another Name",
		w.key)}
}

// write creates the object and answers.
func (w *durableWrite) write() (*Decision, error) {
	err := w.create()
	var d *Decision
	switch {
	case err == nil:
		d, err = w.adopt()
	case w.InDoubt():
		d, err = w.failed(fmt.Sprintf("nothing was reserved: it is not known whether reservation %s was written, "+
			"and it will be deleted if it was: try again: %s", w.key, err)), nil
	default:
		d, err = w.failed(fmt.Sprintf("nothing was reserved: reservation %s could not be written: %s", w.key, err)), nil
	}
	if d != nil || err != nil {
		w.takeBack()
		return d, err
	}
	if w.InDoubt() {
		w.a.goOn(w.guard)
	}
	w.a.o.Ledger.SetSlotDeadline(w.key.Namespace, w.key.Name, w.ends())
	return w.a.conclude(w.gangAttempt, w.stored), nil
}

// create finds out which object is there in the end. After an error there is none,
// unless the write is in doubt.
func (w *durableWrite) create() error {
	a := w.a
	return a.persist(w.deadline, func() error {
		sent := time.Now()
		stored, err := a.o.Store.Create(a.ctx, w.object)
		said := fates.Of(reservationsResource, err)
		w.Sent(sent, said)
		switch {
		case said == fates.Done:
			w.stored, w.created = stored, true
		case said == fates.Exists || w.InDoubt():
			found, readErr := a.o.Store.Get(a.ctx, w.key.Namespace, w.key.Name)
			if readErr == nil {
				w.stored, w.created = found, sameAttempt(found, w.object)
				return nil
			}
		}
		return err
	})
}

// adopt judges the object that is there, answers for it where it is of an earlier attempt, and judges it as it is then.
func (w *durableWrite) adopt() (*Decision, error) {
	if d, err := w.judge(); d != nil || err != nil || w.created {
		return d, err
	}
	if err := w.answerFor(w.stored); err != nil {
		return w.failed(fmt.Sprintf("nothing was reserved: reservation %s, which was made before, could not be changed: "+
			"try again: %s", w.key, err)), nil
	}
	return w.judge()
}

// answerFor writes into an object of an earlier attempt that this attempt answers for it, and brings it up to date. The
// object has another resourceVersion then. So a DELETE of an earlier leader, or of an earlier try, that is still under
// way is refused. Objects that /reserve did not make are not written: nothing here deletes them.
func (w *durableWrite) answerFor(object *v1alpha1.Reservation) error {
	if object.Annotations[attemptAnnotation] == "" {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, object.UID, answeredAnnotation, w.attempt)
	return w.a.persist(w.deadline, func() error {
		stored, err := w.a.o.Store.Patch(w.a.ctx, object.Namespace, object.Name, patch)
		if err == nil {
			*object = *stored
		}
		return err
	})
}

// judge says why the object that is there does not stand for the gang; nil where it does.
func (w *durableWrite) judge() (*Decision, error) {
	switch {
	case !sameRequest(w.stored, w.object):
		return nil, w.taken()
	case w.created && slices.Contains(w.others(), w.key):
		return w.failed(fmt.Sprintf("nothing was reserved: an earlier reservation %s has just ended: try again", w.key)), nil
	case w.created:
		return nil, nil
	}
	lost := w.lostSlots()
	if len(lost) == 0 {
		return nil, nil
	}
	w.a.o.Ledger.ReleaseSlots(w.key.Namespace, w.key.Name, lost...)
	d := w.failed(fmt.Sprintf("reservation %s was made at %s and has no capacity for %d of the pods: "+
		"it was given up since (TTL, /unreserve, or the pod is gone), or refused then: reserve again with a new "+
		"RequestID or Name",
		w.key, w.stored.CreationTimestamp.UTC().Format(time.RFC3339), len(lost)))
	d.Failed = d.Failed[:0]
	for _, slot := range lost { // a slot has the name of its pod
		d.Failed = append(d.Failed, ledger.PodRef{Namespace: w.key.Namespace, Name: slot})
	}
	return d, nil
}

// lostSlots are those of the gang for which an object that was there before has no
// capacity, or none any more, or other devices.
func (w *durableWrite) lostSlots() []string {
	stands := map[string]bool{}
	deadline, clock := convert.Deadline(w.stored), w.a.o.Ledger.Clock
	if live(w.stored) && (deadline.IsZero() || clock.Wall().Before(deadline)) {
		kept, err := convert.GrantedSlots(w.a.o.Ledger.Table(), w.stored)
		given := w.given()
		for i := range kept {
			slot, d := kept[i].Ref.Slot, kept[i].Devices
			stands[slot] = err == nil && (d == nil || d.Given == strings.Join(convert.DeviceIDs(given[slot]), ","))
		}
	}
	return slices.DeleteFunc(w.slots(), func(slot string) bool { return stands[slot] })
}
