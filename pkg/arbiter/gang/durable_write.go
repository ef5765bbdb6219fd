package gang

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/fates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// durableWrite is one durable gang that is not a dry run.
//
// The objects' names make a repeated create harmless. As long as the fate of a create is
// not known, the object is read back and the create sent again, until the object is known
// to be there. When the deadline is over first, the scheduler is told that nothing was
// reserved, and the capacity stays kept until it is certain that no object says otherwise.
type durableWrite struct {
	*gangAttempt
	a        *Arbiter
	deadline time.Time
	leave    func()
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
	parts := w.keepSlots()
	tie(parts)
	return w.write(parts)
}

func (w *durableWrite) failed(why string) *Decision { return w.a.failed("reserve", w.gang, why) }

// keepSlots leaves the objects the slots that were made, and says which devices they
// keep: a restart must not choose others. It returns the parts that have slots.
func (w *durableWrite) keepSlots() []*part {
	var parts []*part
	for _, p := range w.parts {
		slots := w.slots(p)
		if len(slots) == 0 {
			continue
		}
		parts = append(parts, p)
		slices.Sort(slots)
		p.object.Spec.Slots = slices.DeleteFunc(p.object.Spec.Slots, func(s v1alpha1.Slot) bool {
			_, kept := slices.BinarySearch(slots, s.Name)
			return !kept
		})
		given := w.a.given(p)
		for i := range p.object.Spec.Slots {
			slot := &p.object.Spec.Slots[i]
			convert.KeepDevices(slot, given[slot.Name])
		}
	}
	return parts
}

// given returns the devices that the slots of a part keep.
func (a *Arbiter) given(p *part) map[string][]ledger.GivenDevices {
	given := map[string][]ledger.GivenDevices{}
	for _, view := range a.o.Ledger.ReservationSlots(p.key.Namespace, p.key.Name) {
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
			return w.part(key) == nil && w.a.writers.writing(key) != nil
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

// part returns the part of a name; nil where that is another's.
func (w *durableWrite) part(key types.NamespacedName) *part {
	at := slices.IndexFunc(w.parts, func(p *part) bool { return p.key == key })
	if at < 0 {
		return nil
	}
	return w.parts[at]
}

// checkOthers looks the objects up in which pods of the gang have capacity.
func (w *durableWrite) checkOthers() (why string, err error) {
	if w.granted() == 0 {
		return "", nil
	}
	for _, key := range w.others() {
		own := w.part(key)
		if own != nil && len(w.slots(own)) > 0 {
			continue // it is going to be written, and that tells
		}
		object, err := w.a.o.Store.Get(w.a.ctx, key.Namespace, key.Name)
		ending := err == nil && !live(object)
		if err == nil && !ending {
			ending, err = w.a.belongsToUnfinished(w.a.ctx, object)
		}
		switch {
		case ending || fates.Of(reservationsResource, err) == fates.Missing:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, is ending: "+
				"try again", key), nil
		case err != nil:
			return fmt.Sprintf("nothing was reserved: reservation %s, which has capacity for pods of the gang, could not be "+
				"read: %s", key, err), nil
		case own != nil && w.gang.RequestID != "" && !sameRequest(object, own.object):
			return "", w.taken(own)
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
func (w *durableWrite) taken(p *part) error {
	if w.gang.Name == "" {
		return ErrRequestIDUsed(w.gang.RequestID)
	}
	return &RequestError{Conflict: true, Message: fmt.Sprintf("there is another reservation %s: choose another Name",
		p.key)}
}

// write creates the objects and answers.
func (w *durableWrite) write(parts []*part) (*Decision, error) {
	p, err := w.createAll(parts)
	var d *Decision
	switch {
	case err == nil:
		d, err = w.adopt(parts)
	case p.InDoubt():
		d, err = w.failed(fmt.Sprintf("nothing was reserved: it is not known whether reservation %s was written, "+
			"and it will be deleted if it was: try again: %s", p.key, err)), nil
	default:
		d, err = w.failed(fmt.Sprintf("nothing was reserved: reservation %s could not be written: %s", p.key, err)), nil
	}
	if d != nil || err != nil {
		w.takeBack(parts)
		return d, err
	}
	for _, p := range parts {
		if p.InDoubt() {
			w.a.goOn(func() { w.a.guard(p) })
		}
		w.a.o.Ledger.SetSlotDeadline(p.key.Namespace, p.key.Name, w.ends(p))
	}
	return w.a.conclude(w.gangAttempt, parts), nil
}

// maxCreates is how many objects of one gang are written at once.
const maxCreates = 4

// createAll brings about the objects of a gang, the head first, and makes them true. An
// error comes with the part that could not be written.
func (w *durableWrite) createAll(parts []*part) (*part, error) {
	head, others := parts[0], parts[1:]
	if err := w.create(head); err != nil || !head.created && isUnfinished(head.stored) {
		return head, err // judge tells of what is unfinished
	}
	var creates errgroup.Group
	creates.SetLimit(maxCreates)
	errs := make([]error, len(others))
	for k, p := range others {
		creates.Go(func() error {
			errs[k] = w.create(p)
			return nil
		})
	}
	_ = creates.Wait() // errs has the errors
	if k := slices.IndexFunc(errs, func(err error) bool { return err != nil }); k >= 0 {
		return others[k], errors.Join(errs...)
	}
	if len(others) == 0 || !head.created {
		return head, nil
	}
	return head, w.finish(head)
}

// create finds out which object is there in the end. After an error there is none,
// unless the part is in doubt.
func (w *durableWrite) create(p *part) error {
	a := w.a
	return a.persist(w.deadline, func() error {
		sent := time.Now()
		stored, err := a.o.Store.Create(a.ctx, p.object)
		said := fates.Of(reservationsResource, err)
		p.Sent(sent, said)
		switch {
		case said == fates.Done:
			p.stored, p.created = stored, true
		case said == fates.Exists || p.InDoubt():
			found, readErr := a.o.Store.Get(a.ctx, p.key.Namespace, p.key.Name)
			if readErr == nil {
				p.stored, p.created = found, sameAttempt(found, p.object)
				return nil
			}
		}
		return err
	})
}

// finish makes a gang true: it takes the label off its head. After an error the head may
// still be there, and takeBack deletes it.
func (w *durableWrite) finish(head *part) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:null}}}`, head.stored.UID, unfinishedLabel)
	return w.a.persist(w.deadline, func() error {
		stored, err := w.a.o.Store.Patch(w.a.ctx, head.key.Namespace, head.key.Name, patch)
		if err == nil {
			head.stored = stored
		}
		return err
	})
}

// adopt judges the objects that are there, answers for those of earlier attempts, and judges them as they are then.
func (w *durableWrite) adopt(parts []*part) (*Decision, error) {
	d, err := w.judge(parts)
	found := slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.created })
	if d != nil || err != nil || len(found) == 0 {
		return d, err
	}
	for _, p := range found {
		if err := w.answerFor(p.stored); err != nil {
			return w.failed(fmt.Sprintf("nothing was reserved: reservation %s, which was made before, could not be changed: "+
				"try again: %s", p.key, err)), nil
		}
	}
	return w.judge(parts)
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

// judge says why the objects that are there do not stand for the gang; nil where
// they do.
func (w *durableWrite) judge(parts []*part) (*Decision, error) {
	for _, p := range parts {
		switch {
		case p.stored == nil || isUnfinished(p.stored) && !p.created:
			return w.failed(fmt.Sprintf("nothing was reserved: reservation %s is of an earlier try, which is being taken "+
				"back: try again", parts[0].key)), nil
		case !sameRequest(p.stored, p.object):
			return nil, w.taken(p)
		case p.created && slices.Contains(w.others(), p.key):
			return w.failed(fmt.Sprintf("nothing was reserved: an earlier reservation %s has just ended: try again", p.key)), nil
		}
	}
	for _, p := range parts {
		if p.created {
			continue
		}
		if lost := w.lostSlots(p); len(lost) > 0 {
			w.a.o.Ledger.ReleaseSlots(p.key.Namespace, p.key.Name, lost...)
			d := w.failed(fmt.Sprintf("reservation %s was made at %s and has no capacity for %d of the pods: "+
				"it was given up since (TTL, /unreserve, or the pod is gone), or refused then: reserve again with a new "+
				"RequestID or Name",
				p.key, p.stored.CreationTimestamp.UTC().Format(time.RFC3339), len(lost)))
			d.Failed = d.Failed[:0]
			for _, slot := range lost { // a slot has the name of its pod
				d.Failed = append(d.Failed, ledger.PodRef{Namespace: p.key.Namespace, Name: slot})
			}
			return d, nil
		}
	}
	return nil, nil
}

// lostSlots are those of the gang for which an object that was there before has no
// capacity, or none any more, or other devices.
func (w *durableWrite) lostSlots(p *part) []string {
	stands := map[string]bool{}
	deadline, clock := convert.Deadline(p.stored), w.a.o.Ledger.Clock
	if live(p.stored) && (deadline.IsZero() || clock.Wall().Before(deadline)) {
		kept, err := convert.GrantedSlots(w.a.o.Ledger.Table(), p.stored)
		given := w.a.given(p)
		for i := range kept {
			slot, d := kept[i].Ref.Slot, kept[i].Devices
			stands[slot] = err == nil && (d == nil || d.Given == strings.Join(convert.DeviceIDs(given[slot]), ","))
		}
	}
	return slices.DeleteFunc(w.slots(p), func(slot string) bool { return stands[slot] })
}
