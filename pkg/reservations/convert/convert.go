// Package convert translates between Reservation objects and the ledger's slots, and reads from an object what was
// granted to it. It is pure: the controller, the REST API and the keeper of deleted pods' capacity share it.
package convert

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// MadeByLabel is on Reservations that the server made itself, with one of the values below. Capacity is held in the
// ledger before such an object is created, so it counts as available from its creation on. The label alone gives
// nothing: others can write it, too.
const (
	MadeByLabel = "globalreserve.io/made-by"
	// MadeByReserve is the value for gangs reserved through /reserve.
	MadeByReserve = "reserve"
	// MadeByDeletedPod is the value for the capacity of deleted pods.
	MadeByDeletedPod = "deleted-pod"
)

// MadeByServer reports whether the server made the object itself.
func MadeByServer(rsv *v1alpha1.Reservation) bool {
	switch rsv.Labels[MadeByLabel] {
	case MadeByReserve, MadeByDeletedPod:
		return true
	default:
		return false
	}
}

// Granted reports whether an object says that its capacity was granted and has not ended: by its status, or because the
// server made it and has written no status yet. The policy globalreserve-records keeps others from writing either.
// Where that is missing this proves nothing. So where capacity is given for it, the ledger decides like on anything
// new; only the gates are not asked again. Its deadline may have passed; see Deadline.
func Granted(rsv *v1alpha1.Reservation) bool {
	return rsv.Status.Phase == v1alpha1.ReservationAvailable || (rsv.Status.Phase == "" && MadeByServer(rsv))
}

// Deadline returns when capacity that was granted expires, and zero where it never does: status.expiresAt once that is
// written; before, for an object the server made, its creation plus its ttl, rounded up to whole seconds as the API
// writes times. An object without a ttl has no deadline yet.
func Deadline(rsv *v1alpha1.Reservation) time.Time {
	switch ttl := rsv.Spec.TTL; {
	case rsv.Status.ExpiresAt != nil:
		return rsv.Status.ExpiresAt.Time
	case rsv.Status.AvailableAt != nil || ttl == nil || ttl.Duration == 0 || !MadeByServer(rsv):
		return time.Time{}
	default:
		return DeadlineAfter(rsv.CreationTimestamp.Time, ttl.Duration)
	}
}

// DeadlineAfter returns the whole second at or after from+ttl: a reservation
// lasts no less than its ttl, and the object can say exactly when it ends.
func DeadlineAfter(from time.Time, ttl time.Duration) time.Time {
	at := from.Add(ttl)
	if whole := at.Truncate(time.Second); !whole.Equal(at) {
		at = whole.Add(time.Second)
	}
	return at
}

// Slots returns what has to be asked of the ledger for the slots of an object, in their order. A slot whose node the
// server is to choose has no Node yet. Where the object names no priority it is 0: a caller that knows the slots' pods
// fills in the priority of these. The deadline is as the object says it, by the wall clock. An error says what of the
// spec can never be met.
func Slots(t *resources.Table, rsv *v1alpha1.Reservation) ([]ledger.Slot, error) {
	var priority int32
	if rsv.Spec.Priority != nil {
		priority = *rsv.Spec.Priority
	}
	deadline := Deadline(rsv)
	result := make([]ledger.Slot, 0, len(rsv.Spec.Slots))
	for i := range rsv.Spec.Slots {
		slot := &rsv.Spec.Slots[i]
		capacity := capacityOf(slot)
		req, err := resources.ForCapacity(t, &capacity)
		if err != nil {
			return nil, fmt.Errorf("slot %s: %w", slot.Name, err)
		}
		h := ledger.Slot{
			Ref: ledger.SlotRef{Namespace: rsv.Namespace, Name: rsv.Name, Slot: slot.Name},
			UID: rsv.UID, Node: slot.NodeName, Request: &req,
			Policy:    ledger.AllocatePolicy(cmp.Or(rsv.Spec.AllocatePolicy, v1alpha1.AllocateOnce)),
			Scheduler: rsv.Spec.SchedulerName, Caller: rsv.Annotations[v1alpha1.CallerAnnotation], Priority: priority,
			Preemptible: rsv.Spec.Preemptible,
			Deadline:    deadline,
		}
		if slot.Pod != nil {
			h.Pod = ledger.PodRef{Namespace: rsv.Namespace, Name: slot.Pod.Name, UID: slot.Pod.UID}
			h.PodToCome = rsv.Labels[MadeByLabel] == MadeByReserve && h.Pod.UID == "" && !ledger.MayAll(h.Caller)
		}
		result = append(result, h)
	}
	if err := setDevices(result, rsv); err != nil {
		return nil, err
	}
	for i := range result {
		result[i].Request = result[i].Devices.Counted(t, result[i].Request)
	}
	return result, nil
}

// GrantedSlots returns the slots of an object as it says that they were granted, without the slots that are used up or
// given back. A slot whose spec names no node is on that of its status; where that names none, the slot is left out.
func GrantedSlots(t *resources.Table, rsv *v1alpha1.Reservation) ([]ledger.Slot, error) {
	all, err := Slots(t, rsv)
	if err != nil {
		return nil, err
	}
	status := make(map[string]*v1alpha1.SlotStatus, len(rsv.Status.Slots))
	for i := range rsv.Status.Slots {
		status[rsv.Status.Slots[i].Name] = &rsv.Status.Slots[i]
	}
	kept := all[:0]
	for i, h := range all {
		s := status[h.Ref.Slot]
		setGiven(&h, &rsv.Spec.Slots[i], s)
		if s != nil {
			if over(s, h.Policy) {
				continue
			}
			h.Node = cmp.Or(h.Node, s.NodeName)
		}
		if h.Node != "" {
			kept = append(kept, h)
		}
	}
	return kept, nil
}

// over reports whether a slot keeps nothing any more. A slot that several pods
// may share goes on holding its capacity while they use it.
func over(s *v1alpha1.SlotStatus, policy ledger.AllocatePolicy) bool {
	return s.State == v1alpha1.SlotReleased || (s.State == v1alpha1.SlotConsumed && policy == ledger.Once)
}

func capacityOf(slot *v1alpha1.Slot) resources.Capacity {
	capacity := resources.Capacity{Requests: slot.Requests, Tolerations: slot.Tolerations}
	for _, p := range slot.HostPorts {
		capacity.Ports = append(capacity.Ports, resources.HostPort{
			PortKey: resources.PortKey{Protocol: p.Protocol, Port: p.Port}, IP: p.HostIP,
		})
	}
	return capacity
}

// objectSlot writes a slot as the slot of an object; Slots of it is the slot again.
// The object's spec says the rest: policy, scheduler, priority, deadline.
func objectSlot(t *resources.Table, h *ledger.Slot) v1alpha1.Slot {
	capacity := resources.CapacityOf(t, h.Request)
	slot := v1alpha1.Slot{
		Name: h.Ref.Slot, NodeName: h.Node, Requests: capacity.Requests, Tolerations: capacity.Tolerations,
		Devices: slotDevices(h.Devices),
	}
	for _, p := range capacity.Ports {
		slot.HostPorts = append(slot.HostPorts, v1alpha1.HostPort{HostIP: p.IP, Protocol: p.Protocol, Port: p.Port})
	}
	if h.Pod.Name != "" {
		slot.Pod = &v1alpha1.PodReference{Name: h.Pod.Name, UID: h.Pod.UID}
	}
	return slot
}

// Object writes the slots of one reservation as the object the server creates for them. ttl counts from its creation;
// the server's slots must get the object's Deadline. madeBy is a value of MadeByLabel.
func Object(t *resources.Table, slots []ledger.Slot, ttl time.Duration, madeBy string) *v1alpha1.Reservation {
	first, priority := &slots[0], slots[0].Priority
	rsv := &v1alpha1.Reservation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: first.Ref.Namespace, Name: first.Ref.Name, Labels: map[string]string{MadeByLabel: madeBy},
			Annotations: map[string]string{v1alpha1.CallerAnnotation: first.Caller},
		},
		Spec: v1alpha1.ReservationSpec{
			SchedulerName: first.Scheduler, Priority: &priority, Preemptible: first.Preemptible,
			TTL:            &metav1.Duration{Duration: ttl},
			AllocatePolicy: v1alpha1.AllocatePolicy(first.Policy),
		},
	}
	for i := range slots {
		rsv.Spec.Slots = append(rsv.Spec.Slots, objectSlot(t, &slots[i]))
	}
	return rsv
}

// PodOf names a pod as the status of a slot does.
func PodOf(pod ledger.PodRef) v1alpha1.PodReference {
	return v1alpha1.PodReference{Name: pod.Name, UID: pod.UID}
}
