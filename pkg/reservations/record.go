package reservations

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// record is what the server knows of one Reservation. Its methods are the steps
// of its life; none has a clock, calls the ledger or reaches the API server.
type record struct {
	// rsv is the newest state of the object; it is shared and not changed.
	rsv *v1alpha1.Reservation
	// status is what the object is to say.
	status v1alpha1.ReservationStatus
	slots  []slotRecord // in the order of the spec
	byName map[string]int
	// deadline is when the reservation expires, by the steady clock; zero means never. The status says
	// when the wall clock showed that when it was written.
	deadline time.Time
	// failure is why the reservation is being given up; its slots are released,
	// and when the last one is gone it fails for this.
	failure *cause
	// told is when the message of a pending reservation was last changed.
	told time.Time
	// why is why the last attempt at a pending reservation came to nothing, lacking the slot that there was no capacity
	// for, and lacks what that asks for.
	why     cause
	lacking string
	lacks   []ledger.Lack
	// refusedFor is why, and for which slot, OnRefused was called last.
	refusedFor string
	// placing is true while the ledger is being asked for the slots: they may
	// end before anybody knows that they were granted.
	placing bool
	// tried is when a pending reservation was tried last, by the steady clock, and freed what Controller.freed was then.
	// missed says that the turn of its namespace was over before it was tried.
	tried  time.Time
	freed  uint64
	missed bool
	// refusedTTL is the last ttl that was refused, so that one Event is written of it.
	refusedTTL time.Duration
}

// slotRecord is one slot: held while the ledger has its slot, as far as known.
type slotRecord struct {
	held bool
	end  ending
	// releasing: the slot is given back as soon as the object says so.
	releasing bool
}

// holds reports whether the slot is held and its end is not known.
func (s *slotRecord) holds() bool { return s.held && s.end.how == "" }

// ending is how a slot ended: the type of the ledger's event, and the pod that
// ended it, if one did. The zero value is a slot that has not ended.
type ending struct {
	how ledger.EventType
	pod ledger.PodRef
}

// cause is a reason and a message, as conditions and Events have them.
type cause struct{ reason, message string }

func newRecord(rsv *v1alpha1.Reservation) *record {
	r := &record{
		rsv: rsv, status: *rsv.Status.DeepCopy(),
		slots: make([]slotRecord, len(rsv.Spec.Slots)), byName: make(map[string]int, len(rsv.Spec.Slots)),
	}
	for i := range rsv.Spec.Slots {
		r.byName[rsv.Spec.Slots[i].Name] = i
	}
	return r
}

func (r *record) key() types.NamespacedName { return keyOf(r.rsv) }

func (r *record) final() bool { return r.status.Phase.IsFinal() }

// pending reports whether the reservation waits to be placed.
func (r *record) pending() bool {
	return r.status.Phase == "" || r.status.Phase == v1alpha1.ReservationPending
}

// keepsOn reports whether a slot is held on a node.
func (r *record) keepsOn(node string) bool {
	for i := range r.slots {
		if r.slots[i].held && r.status.Slots[i].NodeName == node {
			return true
		}
	}
	return false
}

// tellAgain is how long the message of a pending reservation stays while its
// reason does: messages have amounts, which change all the time.
const tellAgain = 10 * time.Second

// waits records why the reservation is not placed yet. It reports whether that has changed the status.
func (r *record) waits(why cause, now time.Time) bool {
	r.why, r.lacking, r.lacks = why, "", nil
	told := r.condition(v1alpha1.ConditionAvailable)
	known := told.Reason == why.reason && told.ObservedGeneration == r.rsv.Generation
	if known && (now.Sub(r.told).Abs() < tellAgain || told.Message == informer.Clip(why.message, maxMessage)) {
		return false
	}
	r.told = now
	r.status.Phase = v1alpha1.ReservationPending
	r.describe(why, now)
	return true
}

// givenBack returns the slots that a status says were given back, by name. A pending reservation asks for the others.
func givenBack(status *v1alpha1.ReservationStatus) map[string]bool {
	names := map[string]bool{}
	for i := range status.Slots {
		if s := &status.Slots[i]; s.State == v1alpha1.SlotReleased {
			names[s.Name] = true
		}
	}
	return names
}

// giveBack writes into the status which slots were given back, and nothing of the others: nothing is held yet.
func (r *record) giveBack(names map[string]bool) {
	r.status.Slots = nil
	for i := range r.rsv.Spec.Slots {
		if name := r.rsv.Spec.Slots[i].Name; names[name] {
			r.status.Slots = append(r.status.Slots, v1alpha1.SlotStatus{Name: name, State: v1alpha1.SlotReleased})
		}
	}
}

// toGiveBack reports whether it would still have to be written that a slot is given back.
func (r *record) toGiveBack(slot string) bool {
	if givenBack(&r.status)[slot] {
		return !givenBack(&r.rsv.Status)[slot]
	}
	return r.slots[r.byName[slot]].held || r.pending()
}

// granted records that the capacity is held since availableAt, on the nodes in slots, except for slots that were given
// back.
func (r *record) granted(slots []v1alpha1.SlotStatus, availableAt, now time.Time) {
	r.status.Phase = v1alpha1.ReservationAvailable
	r.status.AvailableAt = &metav1.Time{Time: availableAt}
	r.status.Slots = slots
	for i := range slots {
		slots[i].Name = r.rsv.Spec.Slots[i].Name
		if slots[i].State == "" {
			slots[i].State, r.slots[i].held = v1alpha1.SlotReserved, true
		}
	}
	r.describe(cause{reason: reasonHeld}, now)
}

// expire records when the reservation expires, by the wall clock for the object, and by the steady one; zero
// means never.
func (r *record) expire(expiresAt, deadline time.Time) {
	r.status.ExpiresAt, r.deadline = nil, deadline
	if !expiresAt.IsZero() {
		r.status.ExpiresAt = &metav1.Time{Time: expiresAt}
	}
}

// extended returns when a ttl lets an available reservation expire, by both clocks, and whether that is later than
// it does. The deadline moves as far as expiresAt does, whatever the wall clock shows.
func (r *record) extended(ttl time.Duration) (expiresAt, deadline time.Time, later bool) {
	current := r.status.ExpiresAt
	if r.status.AvailableAt == nil || current == nil {
		return time.Time{}, r.deadline, false
	}
	if ttl == 0 {
		return time.Time{}, time.Time{}, true
	}
	expiresAt = convert.DeadlineAfter(r.status.AvailableAt.Time, ttl)
	by := expiresAt.Sub(current.Time)
	return expiresAt, r.deadline.Add(by), by > 0
}

// ended notes how a slot ended, for project to act on. It reports false where the slot was none of this reservation's.
func (r *record) ended(slot string, end ending) bool {
	i, ok := r.byName[slot]
	if !ok || (!r.slots[i].held && !r.placing) {
		return false
	}
	r.slots[i].end = end
	return true
}

// project brings the slots of an available reservation up to what the ledger has for them, by name,
// and ends it when none of them is held any more.
func (r *record) project(kept map[string]*ledger.SlotView, now time.Time) {
	held := 0
	for i := range r.slots {
		s, status := &r.slots[i], &r.status.Slots[i]
		switch {
		case !s.held:
			continue
		case s.end.how != "":
			s.held = false
			closeSlot(status, s.end)
			continue
		case s.releasing:
			status.State, status.Pods, status.Devices, status.LostDevices = v1alpha1.SlotReleased, nil, nil, nil
		default:
			view := kept[status.Name]
			showConsumers(status, view.Consumers, max(1, v1alpha1.MaxSlots/len(r.slots)))
			status.Devices, status.LostDevices = convert.DeviceIDs(view.Given), view.Lost
		}
		held++
	}
	if held > 0 {
		r.describe(cause{reason: reasonHeld}, now)
		return
	}
	phase, why := r.outcome()
	r.finish(phase, why, now)
}

// showConsumers shows the pods that use a slot, no more than most of them: as many pods use a shared slot as fit, and
// the object has to fit into etcd.
func showConsumers(status *v1alpha1.SlotStatus, consumers []ledger.Consumer, most int) {
	status.State, status.Pods = v1alpha1.SlotReserved, nil
	for _, c := range consumers {
		if c.State == ledger.Bound && len(status.Pods) < most {
			status.State = v1alpha1.SlotConsumed
			status.Pods = append(status.Pods, convert.PodOf(c.Pod))
		}
	}
}

// closeSlot shows a slot that has ended. Pods that shared it keep what they use.
func closeSlot(status *v1alpha1.SlotStatus, end ending) {
	status.Devices, status.LostDevices = nil, nil
	switch {
	case end.how == ledger.SlotConsumed:
		status.State, status.Pods = v1alpha1.SlotConsumed, []v1alpha1.PodReference{convert.PodOf(end.pod)}
	case status.State == v1alpha1.SlotConsumed && len(status.Pods) > 0:
	default:
		status.State, status.Pods = v1alpha1.SlotReleased, nil
	}
}

// winner names the pod that took the capacity, for those who may read the reservation.
func winner(namespace string, pod ledger.PodRef) string {
	if pod.Namespace != namespace {
		return "a pod of another namespace"
	}
	return "pod " + pod.String()
}

// outcome returns how a reservation ended that holds nothing any more.
func (r *record) outcome() (v1alpha1.ReservationPhase, cause) {
	if r.failure != nil {
		return v1alpha1.ReservationFailed, *r.failure
	}
	for i := range r.slots {
		if end := r.slots[i].end; end.how == ledger.SlotPreempted {
			return v1alpha1.ReservationPreempted, cause{
				string(v1alpha1.ReservationPreempted), winner(r.rsv.Namespace, end.pod) +
					" has a higher priority and took the capacity",
			}
		}
	}
	used := r.status.CountSlots(v1alpha1.SlotConsumed)
	for i := range r.slots {
		if r.slots[i].end.how == ledger.SlotExpired {
			return v1alpha1.ReservationExpired, cause{
				string(v1alpha1.ReservationExpired),
				fmt.Sprintf("the ttl is over; pods used %d of %d slots", used, len(r.slots)),
			}
		}
	}
	if used > 0 {
		return v1alpha1.ReservationSucceeded, cause{
			string(v1alpha1.ReservationSucceeded), fmt.Sprintf("pods used %d of %d slots", used, len(r.slots)),
		}
	}
	return v1alpha1.ReservationFailed, cause{
		reasonReleased,
		"all slots were given back unused: the pods they were for are gone, run elsewhere, or are another scheduler's",
	}
}

// finish ends the reservation.
func (r *record) finish(phase v1alpha1.ReservationPhase, why cause, now time.Time) {
	r.status.Phase = phase
	for i := range r.slots {
		r.slots[i].held = false
	}
	r.describe(why, now)
}
