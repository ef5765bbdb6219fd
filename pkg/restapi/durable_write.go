package restapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// durableWrite is one durable /reserve that is not a dry run.
//
// The object's name makes a repeated create harmless: as long as the fate of one
// is not known, it is read back and sent again, until the object is known to be
// there or StoreTimeout is over. Then the scheduler is told that nothing was
// reserved, and the room stays held until it is certain that no object says
// otherwise.
type durableWrite struct {
	*allotment
	api    *API
	object *v1alpha1.Reservation
	leave  func()
	// lost is when the last create was sent whose fate is not known; zero if none.
	lost time.Time
}

// run decides the group and writes it down.
func (w *durableWrite) run(ctx context.Context) (outcome, error) {
	why, err := w.settleOthers(ctx)
	switch {
	case err != nil:
		w.api.giveUp(w.allotment)
		return outcome{}, err
	case why != "":
		w.api.giveUp(w.allotment)
		return w.api.failed(w.group, why), nil
	case len(w.holds) == 0:
		return w.api.conclude(w.allotment, nil), nil
	}
	w.keepSlots()
	return w.write()
}

// keepSlots leaves the object the slots that got a hold, and says which devices they
// keep: a restart must not choose others.
func (w *durableWrite) keepSlots() {
	slots := w.slots()
	slices.Sort(slots)
	w.object.Spec.Slots = slices.DeleteFunc(w.object.Spec.Slots, func(s v1alpha1.Slot) bool {
		_, kept := slices.BinarySearch(slots, s.Name)
		return !kept
	})
	given := w.given()
	for i := range w.object.Spec.Slots {
		slot := &w.object.Spec.Slots[i]
		convert.KeepDevices(slot, given[slot.Name])
	}
}

// given returns the devices that the holds keep, by slot.
func (w *durableWrite) given() map[string][]ledger.GivenDevices {
	given := map[string][]ledger.GivenDevices{}
	for _, view := range w.api.ledger.ReservationHolds(w.key.Namespace, w.key.Name) {
		given[view.Ref.Slot] = view.Given
	}
	return given
}

// settleOthers decides the group, and makes sure that what it finds reserved
// already is written down: another request may be writing it, and that may fail.
// why tells what keeps the group from being decided now; err is for a request
// that makes no sense.
func (w *durableWrite) settleOthers(ctx context.Context) (why string, err error) {
	for range allotTries {
		w.api.allot(w.allotment)
		at := slices.IndexFunc(w.others(), func(key types.NamespacedName) bool {
			return key != w.key && w.api.writes.isOpen(key)
		})
		if at < 0 {
			return w.checkOthers()
		}
		other := w.others()[at]
		w.api.giveUp(w.allotment)
		if !w.api.writes.wait(ctx, other) {
			return notKnownYet(other), nil
		}
	}
	return "nothing was reserved: other requests are reserving room for the same pods: try again", nil
}

// checkOthers looks the objects up in which pods of the group have room.
func (w *durableWrite) checkOthers() (why string, err error) {
	if w.granted() == 0 {
		return "", nil
	}
	for _, key := range w.others() {
		if key == w.key && len(w.holds) > 0 {
			continue // it is going to be written, and that tells
		}
		object, err := w.api.store.Get(w.api.writes.ctx, key.Namespace, key.Name)
		switch {
		case store.Classify(err) == store.Missing, err == nil && !live(object):
			return fmt.Sprintf("nothing was reserved: reservation %s, which has room for pods of the group, is ending: try again", key), nil
		case err != nil:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has room for pods of the group, could not be read: %s", key, err), nil
		case key == w.key && w.group.requestID != "" && !sameRequest(object, w.object):
			return "", w.taken()
		}
	}
	return "", nil
}

// live reports whether an object still stands for room.
func live(object *v1alpha1.Reservation) bool {
	return convert.Granted(object) && object.DeletionTimestamp == nil
}

// sameRequest reports whether both objects were made for equal requests.
func sameRequest(a, b *v1alpha1.Reservation) bool {
	return a.Annotations[requestAnnotation] == b.Annotations[requestAnnotation]
}

// taken refuses a group because an object of its name is there.
func (w *durableWrite) taken() error {
	if w.group.name == "" {
		return errRequestIDUsed(w.group.requestID)
	}
	return httpjson.Errorf(http.StatusConflict, "there is another reservation %s: choose another Name", w.key)
}

// write creates the object and answers.
func (w *durableWrite) write() (outcome, error) {
	stored, created, err := w.create()
	a := w.api
	if err == nil && !w.lost.IsZero() {
		a.writes.background.Go(func() { w.guard(stored.UID) })
	}
	switch {
	case err != nil && !w.lost.IsZero():
		w.undoLater()
		return a.failed(w.group, fmt.Sprintf("nothing was reserved: it is not known whether reservation %s was written, "+
			"and it will be deleted if it was: try again: %s", w.key, err)), nil
	case err != nil:
		a.giveUp(w.allotment)
		return a.failed(w.group, fmt.Sprintf("nothing was reserved: reservation %s could not be written: %s", w.key, err)), nil
	case !sameRequest(stored, w.object):
		a.giveUp(w.allotment)
		return outcome{}, w.taken()
	}
	if created && slices.Contains(w.others(), w.key) {
		return w.startOver(stored), nil
	}
	if !created {
		if lost := w.lostSlots(stored); len(lost) > 0 {
			return w.refuseLost(stored, lost), nil
		}
	}
	a.ledger.SetHoldDeadline(w.key.Namespace, w.key.Name, convert.Deadline(stored))
	return a.conclude(w.allotment, stored), nil
}

// startOver takes back an object that was made after an earlier one of the name
// was deleted, in which pods of the group had been found to have room.
func (w *durableWrite) startOver(stored *v1alpha1.Reservation) outcome {
	if w.api.remove(stored) == nil {
		w.api.giveUp(w.allotment)
	} else {
		w.lost = w.api.clock.Now()
		w.undoLater()
	}
	return w.api.failed(w.group, fmt.Sprintf("nothing was reserved: an earlier reservation %s has just ended: try again", w.key))
}

// create returns the object that is there in the end, and whether this request
// is known to have made it. After an error there is none, unless lost is set.
func (w *durableWrite) create() (stored *v1alpha1.Reservation, created bool, err error) {
	a := w.api
	deadline := a.clock.Now().Add(a.limits.StoreTimeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent := a.clock.Now()
		stored, err = a.store.Create(a.writes.ctx, w.object)
		said := store.Classify(err)
		switch said {
		case store.Done:
			return stored, true, nil
		case store.Unknown:
			w.lost = sent
		case store.Refused, store.Missing:
			if w.lost.IsZero() {
				return nil, false, err
			}
		}
		if said == store.Exists || !w.lost.IsZero() {
			found, readErr := a.store.Get(a.writes.ctx, w.key.Namespace, w.key.Name)
			if readErr == nil {
				return found, found.Annotations[attemptAnnotation] == w.object.Annotations[attemptAnnotation], nil
			}
		}
		if said == store.Refused || a.clock.Now().Add(pause).After(deadline) || !a.writes.pause(a.clock, pause) {
			return nil, false, err
		}
	}
}

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// lostSlots are those of the request for which an object that was there before
// has no room, or none any more, or other devices.
func (w *durableWrite) lostSlots(stored *v1alpha1.Reservation) []string {
	kept := map[string]bool{}
	deadline := convert.Deadline(stored)
	if live(stored) && (deadline.IsZero() || w.api.clock.Now().Before(deadline)) {
		holds, err := convert.GrantedHolds(w.api.ledger.Table(), stored)
		given := w.given()
		for i := range holds {
			slot, d := holds[i].Ref.Slot, holds[i].Devices
			kept[slot] = err == nil && (d == nil || d.Given == strings.Join(convert.DeviceIDs(given[slot]), ","))
		}
	}
	return slices.DeleteFunc(w.slots(), func(slot string) bool { return kept[slot] })
}

// refuseLost answers a repeat for which the room is not as it was.
func (w *durableWrite) refuseLost(stored *v1alpha1.Reservation, lost []string) outcome {
	w.api.ledger.ReleaseHolds(w.key.Namespace, w.key.Name, lost...)
	out := w.api.failed(w.group, fmt.Sprintf("reservation %s was made at %s and has no room for %d of the pods: "+
		"it was given up since (TTL, /unreserve, or the pod is gone), or refused then: reserve again with a new RequestID or Name",
		w.key, stored.CreationTimestamp.UTC().Format(time.RFC3339), len(lost)))
	out.answer.FailedPods = lost // a slot has the name of its pod
	return out
}

// undoLater goes on after the answer until no object stands for the room, and
// gives the room back then. Repeats of the request wait for it.
func (w *durableWrite) undoLater() {
	leave := w.leave
	w.leave = func() {}
	w.api.writes.background.Go(func() {
		if w.undo() {
			w.api.giveUp(w.allotment)
		}
		leave()
		w.guard("")
	})
}

// undo deletes the object if it was made, or waits until it cannot be made any
// more. It reports false where the room must stay: an equal request made the
// object, or the server stops.
func (w *durableWrite) undo() bool {
	a := w.api
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		asked := a.clock.Now() // the read tells of this moment or a later one
		found, err := a.store.Get(a.writes.ctx, w.key.Namespace, w.key.Name)
		switch said := store.Classify(err); {
		case said == store.Done && found.Annotations[attemptAnnotation] != w.object.Annotations[attemptAnnotation]:
			return !sameRequest(found, w.object) || w.keepFound(found)
		case said == store.Done:
			err = a.store.Delete(a.writes.ctx, w.key.Namespace, w.key.Name, found.UID)
			if after := store.Classify(err); after == store.Done || after == store.Missing {
				return true
			}
		case said == store.Missing && asked.Sub(w.lost) > a.limits.StoreSettle:
			return true
		}
		if !a.writes.pause(a.clock, pause) {
			return false
		}
	}
}

// keepFound leaves the room as the object of an equal request has it. It always
// reports false: the room is not given up.
func (w *durableWrite) keepFound(found *v1alpha1.Reservation) bool {
	if lost := w.lostSlots(found); len(lost) > 0 {
		w.api.ledger.ReleaseHolds(w.key.Namespace, w.key.Name, lost...)
	}
	w.api.ledger.SetHoldDeadline(w.key.Namespace, w.key.Name, convert.Deadline(found))
	return false
}

// guard waits until no create of this request can still be carried out, and
// deletes what a late one has made beside the object that was answered for: that
// one may have been deleted meanwhile.
func (w *durableWrite) guard(answered types.UID) {
	a := w.api
	wait := w.lost.Add(a.limits.StoreSettle).Sub(a.clock.Now())
	for pause := max(wait, firstPause); a.writes.pause(a.clock, pause); pause = longestPause {
		found, err := a.store.Get(a.writes.ctx, w.key.Namespace, w.key.Name)
		switch said := store.Classify(err); {
		case said == store.Missing:
			return
		case said != store.Done:
			continue
		case found.UID == answered || found.Annotations[attemptAnnotation] != w.object.Annotations[attemptAnnotation]:
			return
		}
		if a.remove(found) == nil {
			return
		}
	}
}

// errRequestIDUsed refuses a RequestID that stands for another request.
func errRequestIDUsed(id string) error {
	return httpjson.Errorf(http.StatusConflict,
		"RequestID \"%s\" was used before for another request: send a new RequestID with every new request", httpjson.Clip(id))
}
