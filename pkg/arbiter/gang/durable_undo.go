package gang

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/fates"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// takeBack makes sure that nothing stands for a gang that was not granted. What is
// certain is given back at once. For the rest it goes on after the answer, and
// repeats of the request wait for it.
func (w *durableWrite) takeBack() {
	switch {
	case w.InDoubt():
	case w.created:
		if w.a.remove(w.stored, w.deadline, w.toUndo) == nil {
			w.a.giveUp(w.gangAttempt)
			return
		}
	case w.stored != nil && sameRequest(w.stored, w.object):
		w.keepFound()
		return
	default:
		w.a.giveUp(w.gangAttempt)
		return
	}
	leave := w.leave
	w.leave = func() {}
	w.a.goOn(func() {
		w.undo()
		leave()
		w.guard()
	})
}

// undo deletes the object if it was made, or waits until it cannot be made any more,
// and gives its capacity back, unless an equal request made the object.
func (w *durableWrite) undo() {
	a, tries := w.a, fates.Write{}
	for {
		asked := time.Now() // the read tells of this moment or a later one
		found, err := a.o.Store.Get(a.ctx, w.key.Namespace, w.key.Name)
		switch said := fates.Of(reservationsResource, err); {
		case said == fates.Done && !w.toUndo(found):
			if sameRequest(found, w.object) {
				w.stored = found
				w.keepFound()
			} else {
				a.giveUp(w.gangAttempt)
			}
			return
		case said == fates.Done:
			err = a.o.Store.Delete(a.ctx, found)
			if after := fates.Of(reservationsResource, err); after == fates.Done || after == fates.Missing {
				a.giveUp(w.gangAttempt)
				return
			}
		case said == fates.Missing && w.Over(asked, store.Settle):
			a.giveUp(w.gangAttempt)
			return
		}
		if !follow.Pause(a.ctx, tries.Next(fates.LongestPause, err)) {
			return
		}
	}
}

// keepFound leaves the capacity as the object of an equal request has it.
func (w *durableWrite) keepFound() {
	if lost := w.lostSlots(); len(lost) > 0 {
		w.a.o.Ledger.ReleaseSlots(w.key.Namespace, w.key.Name, lost...)
	}
	w.a.o.Ledger.SetSlotDeadline(w.key.Namespace, w.key.Name, w.ends())
}

// ends returns the deadline of the slots of the object that is there.
func (w *durableWrite) ends() time.Time {
	clock, said := w.a.o.Ledger.Clock, convert.Deadline(w.stored)
	if w.created {
		return clock.Ends(said, w.gang.ttl)
	}
	return clock.At(said)
}

// guard waits until no create of the object can still be carried out. The object that was
// answered for may be deleted meanwhile, so that a late create makes another one: guard
// deletes that.
func (w *durableWrite) guard() {
	if !w.InDoubt() {
		return
	}
	a := w.a
	var answered types.UID
	if w.stored != nil {
		answered = w.stored.UID
	}
	tries := fates.Write{}
	pause := max(time.Until(w.Lost.Add(store.Settle)), fates.FirstPause)
	for ; follow.Pause(a.ctx, pause); pause = tries.Next(fates.LongestPause, nil) {
		found, err := a.o.Store.Get(a.ctx, w.key.Namespace, w.key.Name)
		switch said := fates.Of(reservationsResource, err); {
		case said == fates.Missing:
			return
		case said != fates.Done:
			continue
		case found.UID == answered || !w.toUndo(found):
			return
		}
		if a.remove(found, time.Now().Add(storeTimeout), w.toUndo) == nil {
			return
		}
	}
}

// toUndo reports whether an object that was found is of this attempt, and nobody else has answered for it.
func (w *durableWrite) toUndo(found *v1alpha1.Reservation) bool {
	return sameAttempt(found, w.object) && found.Annotations[answeredAnnotation] == ""
}

// errKept says that there is an object which is not to be deleted any more.
var errKept = errors.New("the object has changed, and stays")

// remove deletes an object. Its UID makes a repeated delete harmless. An object that was changed since it was read is
// read again, and stays where it is not to be deleted any more. After an error the object may still be deleted, where
// the answers were lost. pkg/reservations, which follows the objects, releases the capacity then.
func (a *Arbiter) remove(object *v1alpha1.Reservation, deadline time.Time,
	still func(*v1alpha1.Reservation) bool,
) error {
	return ignoreMissing(a.persist(deadline, func() error {
		err := a.o.Store.Delete(a.ctx, object)
		if fates.Of(reservationsResource, err) != fates.Conflict {
			return err
		}
		found, readErr := a.o.Store.Get(a.ctx, object.Namespace, object.Name)
		switch {
		case fates.Of(reservationsResource, readErr) == fates.Missing:
			return nil
		case readErr != nil:
			return err
		case found.UID != object.UID || !still(found):
			return errKept
		}
		object = found
		return err // and the next try is about what was found
	}))
}

// persist sends a request until an answer tells its fate, the next try would be after
// the deadline, nothing can be decided any more, or Stop. It returns the last answer, or
// why nothing can be decided.
func (a *Arbiter) persist(deadline time.Time, send func() error) error {
	for tries := (fates.Write{}); ; {
		if undecided := a.o.Ledger.Ready(); undecided != nil {
			return undecided
		}
		err := send()
		if said := fates.Of(reservationsResource, err); said == fates.Done || said == fates.Refused ||
			said == fates.Missing ||
			errors.Is(err, errKept) {
			return err
		}
		pause := tries.Next(fates.LongestPause, err)
		if time.Now().Add(pause).After(deadline) || !follow.Pause(a.ctx, pause) {
			return err
		}
	}
}
