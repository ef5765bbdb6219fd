package reserve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// durableWrite is one durable gang that is not a dry run.
//
// Its capacity is in the ledger before its object is created, so an object that is there is never one too many, and
// nothing here deletes it: that is for /unreserve, and for its TTL. The object's name makes a repeated create harmless.
// As long as the fate of a create is not known, the create is sent again, or the object found. Where that takes too
// long, the caller gets an UnknownError, and settle goes on.
type durableWrite struct {
	*durableAttempt
	apiwrite.Write
	a        *Arbiter
	deadline time.Time
	leave    func()
	// stored is the object that is there, as far as is known; created that this request made it, for all its pods.
	stored  *v1alpha1.Reservation
	created bool
}

// run decides the gang and writes it down.
func (w *durableWrite) run(ctx context.Context) (*Decision, error) {
	why, err := w.settleOthers(ctx)
	switch {
	case err != nil:
		w.a.giveUp(w.durableAttempt)
		return nil, err
	case why != "":
		w.a.giveUp(w.durableAttempt)
		return w.failed(why), nil
	case len(w.kept) == 0:
		return w.a.conclude(w.durableAttempt, nil), nil
	case w.stored != nil:
		return w.found()
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

// settleOthers decides the gang, and makes sure that what was reserved for its pods already is written down: another
// request may be writing it, and that may fail. why is what keeps the gang from being decided now. err is for a request
// that makes no sense.
func (w *durableWrite) settleOthers(ctx context.Context) (why string, err error) {
	for range allotTries {
		if err := w.a.allot(w.durableAttempt); err != nil {
			return "", err
		}
		if why, again := w.settleBinds(ctx); why != "" || again {
			w.a.giveUp(w.durableAttempt)
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
		w.a.giveUp(w.durableAttempt)
		if !w.a.writers.wait(ctx, other) {
			return "", w.a.unknown(w.gang, notKnownYet(other))
		}
	}
	return "nothing was reserved: other requests are reserving capacity for the same pods: try again", nil
}

// settleBinds waits until it is known how the binds under way of the gang's pods end. A bind that fails leaves no
// capacity, and the next server does not know of the bind. again is true where one has failed. why is set where that is
// not known in time.
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

// checkOthers looks up the objects in which pods of the gang have capacity.
func (w *durableWrite) checkOthers() (why string, err error) {
	if w.granted() == 0 {
		return "", nil
	}
	for _, key := range w.others() {
		object, err := w.a.o.Store.Get(w.a.ctx, key.Namespace, key.Name)
		if err == nil && live(object) {
			if key == w.key && (w.gang.RequestID != "" || len(w.kept) > 0) && !sameRequest(object, w.object) {
				return "", w.taken()
			}
			err = w.answerFor(object)
		}
		switch {
		case err != nil:
			return w.unanswered(key, err)
		case !live(object):
			return ending(key), nil
		case key == w.key:
			w.stored = object
		}
	}
	return "", nil
}

func ending(key types.NamespacedName) string {
	return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, is ending: "+
		"try again", key)
}

// unanswered returns what it means that an object in which pods of the gang have capacity could not be answered for:
// why nothing is reserved, or an *UnknownError.
func (w *durableWrite) unanswered(key types.NamespacedName, cause error) (why string, err error) {
	text := fmt.Sprintf("reservation %s, which has capacity for pods of the gang, could not be read or changed: %s", key,
		cause)
	switch apiwrite.Of(reservationsResource, cause) {
	case apiwrite.Missing:
		return ending(key), nil
	case apiwrite.Refused:
		return text, nil
	default:
		return "", w.a.unknown(w.gang, text)
	}
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
	switch {
	case err == nil && !w.created:
		return w.found()
	case err == nil:
		w.keepStored()
		if w.InDoubt() && !w.keepsAll() {
			return nil, w.a.unknown(w.gang, fmt.Sprintf("capacity of reservation %s has ended while it was written: send "+
				"the same request again", w.key))
		}
		return w.a.conclude(w.durableAttempt, w.stored), nil
	case w.InDoubt(), apiwrite.Of(reservationsResource, err) == apiwrite.Exists:
		w.settleLater()
		return nil, w.a.unknown(w.gang, fmt.Sprintf("it is not known whether reservation %s was written: send the same "+
			"request again: %s", w.key, err))
	default:
		w.a.giveUp(w.durableAttempt)
		return w.failed(fmt.Sprintf("nothing was reserved: reservation %s could not be written: %s", w.key, err)), nil
	}
}

// keepsAll reports whether the ledger has all slots that were made. Where a create was lost, the watch may have brought
// what it made, and ended the slots with it.
func (w *durableWrite) keepsAll() bool {
	given := w.given()
	return !slices.ContainsFunc(w.slots(), func(slot string) bool { _, kept := given[slot]; return !kept })
}

// create finds out which object is there in the end. After an error there is none, unless the write is in doubt.
func (w *durableWrite) create() error {
	a := w.a
	return a.persist(w.deadline, func() error {
		sent := time.Now()
		stored, err := a.o.Store.Create(a.ctx, w.object)
		said := apiwrite.Of(reservationsResource, err)
		w.Sent(sent, said)
		switch {
		case said == apiwrite.Done:
			w.stored, w.created = stored, true
		case said == apiwrite.Exists || w.InDoubt():
			found, readErr := a.o.Store.Get(a.ctx, w.key.Namespace, w.key.Name)
			if readErr == nil {
				w.stored, w.created = found, sameAttempt(found, w.object)
				return nil
			}
		}
		return err
	})
}

// settleLater finds out after the answer whether the object is there. Others that need it wait until that is known.
// Nothing is kept for longer than an object would that is made at the last moment.
func (w *durableWrite) settleLater() {
	clock := w.a.o.Ledger.Clock
	until := clock.Now().Add(store.Settle + w.gang.ttl)
	w.a.o.Ledger.SetSlotDeadline(w.key.Namespace, w.key.Name, until)
	leave := w.leave
	w.leave = func() {}
	w.a.goOn(func() {
		defer leave()
		for tries := (apiwrite.Write{}); !w.settled() && clock.Now().Before(until); {
			if !informer.Pause(w.a.ctx, tries.Next(apiwrite.LongestPause, nil)) {
				return
			}
		}
	})
}

// settled reports whether it is known that the object is there, or cannot be created any more.
func (w *durableWrite) settled() bool {
	asked := time.Now() // the read shows this moment or a later one
	found, err := w.a.o.Store.Get(w.a.ctx, w.key.Namespace, w.key.Name)
	switch said := apiwrite.Of(reservationsResource, err); {
	case said == apiwrite.Done:
		w.stored, w.created = found, sameAttempt(found, w.object)
		w.keepStored()
		return true
	case said == apiwrite.Missing && w.Over(asked, store.Settle):
		w.a.giveUp(w.durableAttempt)
		return true
	default:
		return false
	}
}

// found answers for an object that an earlier attempt has made, if it still stands for the gang when that is written.
func (w *durableWrite) found() (*Decision, error) {
	d, err := w.judge()
	if d == nil && err == nil {
		if cause := w.answerFor(w.stored); cause == nil {
			d, err = w.judge()
		} else if why, unknown := w.unanswered(w.key, cause); unknown == nil {
			w.a.giveUp(w.durableAttempt)
			d = w.failed(why)
		} else {
			err = unknown
		}
	}
	w.keepStored()
	if d != nil || err != nil {
		return d, err
	}
	return w.a.conclude(w.durableAttempt, w.stored), nil
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

// judge says why the object that was found does not stand for the gang; nil where it does.
func (w *durableWrite) judge() (*Decision, error) {
	if !sameRequest(w.stored, w.object) {
		return nil, w.taken()
	}
	lost := w.lostSlots()
	if len(lost) == 0 {
		return nil, nil
	}
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

// keepStored leaves the gang of its new slots what the object keeps, for as long as that says.
func (w *durableWrite) keepStored() {
	l := w.a.o.Ledger
	if !sameRequest(w.stored, w.object) {
		w.a.giveUp(w.durableAttempt)
		return
	}
	if lost := w.lostSlots(); len(lost) > 0 && !w.created {
		l.ReleaseSlots(w.key.Namespace, w.key.Name, lost...)
	}
	ends := l.Clock.At(convert.Deadline(w.stored))
	if w.created {
		ends = l.Clock.Ends(convert.Deadline(w.stored), w.gang.ttl)
	}
	l.SetSlotDeadline(w.key.Namespace, w.key.Name, ends)
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

// persist sends a request until an answer shows its fate, the next try would be after the deadline, nothing can be
// decided any more, or Stop. It returns the last answer, or why nothing can be decided.
func (a *Arbiter) persist(deadline time.Time, send func() error) error {
	for tries := (apiwrite.Write{}); ; {
		if undecided := a.o.Ledger.Ready(); undecided != nil {
			return undecided
		}
		err := send()
		if said := apiwrite.Of(reservationsResource, err); said == apiwrite.Done || said == apiwrite.Refused ||
			said == apiwrite.Missing ||
			errors.Is(err, errKept) {
			return err
		}
		pause := tries.Next(apiwrite.LongestPause, err)
		if time.Now().Add(pause).After(deadline) || !informer.Pause(a.ctx, pause) {
			return err
		}
	}
}
