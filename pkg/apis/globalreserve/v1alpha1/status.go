package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReservationStatus is what the server made of a Reservation. It is a projection: the ledger follows
// the object, and this shows how far it got.
type ReservationStatus struct {
	// Phase sums up where the reservation stands. Empty: the server has not seen it yet. Pending: it keeps nothing, as not
	// all slots fit; the Available condition says why. Available: it keeps all its slots, or pods use them. The rest are
	// final. Succeeded: pods took the slots. Expired: the ttl was over, and what was unused is free. Failed: it lost its
	// capacity, or can never have it. Preempted: a pod of higher priority has the capacity.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || !(oldSelf in ['Succeeded', 'Expired', 'Failed', 'Preempted'])",message="a reservation that has ended stays as it ended"
	Phase ReservationPhase `json:"phase,omitempty"`

	// ObservedGeneration is the metadata.generation that this status was made from.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// NodeName is the node with the capacity; for slots on several nodes the first and the number
	// of the others, "node-7 +3". It is for people; programs read slots.
	NodeName string `json:"nodeName,omitempty"`

	// Consumed says how many slots pods use, of how many: "2/3". It is for people; programs read slots.
	Consumed string `json:"consumed,omitempty"`

	// AvailableAt is when all slots were held, to the whole second. The TTL counts from here.
	AvailableAt *metav1.Time `json:"availableAt,omitempty"`

	// ExpiresAt is when capacity that no pod uses is given back. It is written with AvailableAt and moves
	// only when the TTL is extended. Absent: never.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Conditions are Available and Finished, and ProvisioningRequested where nodes were requested for it.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Slots show where each slot of the spec is and who uses it, in the order of the spec: at most 1000.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Slots []SlotStatus `json:"slots,omitempty"`
}

// ReservationPhase sums up where a Reservation stands. Succeeded, Expired, Failed and Preempted are final.
//
// +kubebuilder:validation:Enum=Pending;Available;Succeeded;Expired;Failed;Preempted
type ReservationPhase string

const (
	// ReservationPending keeps nothing yet: not all slots fit. The Available condition says why.
	ReservationPending ReservationPhase = "Pending"

	// ReservationAvailable keeps all its slots.
	ReservationAvailable ReservationPhase = "Available"

	// ReservationSucceeded was used: pods took all its slots.
	ReservationSucceeded ReservationPhase = "Succeeded"

	// ReservationExpired reached the end of its TTL with slots unused; their capacity was given back.
	ReservationExpired ReservationPhase = "Expired"

	// ReservationFailed lost its capacity, or can never have it: a node of it is gone, for instance.
	ReservationFailed ReservationPhase = "Failed"

	// ReservationPreempted gave its capacity to a pod of higher priority.
	ReservationPreempted ReservationPhase = "Preempted"
)

// IsFinal reports whether a reservation in this phase has ended: it keeps nothing and never will.
func (p ReservationPhase) IsFinal() bool {
	return p == ReservationSucceeded || p == ReservationExpired || p == ReservationFailed || p == ReservationPreempted
}

// Types of the conditions of a Reservation.
const (
	// ConditionAvailable is True while the reservation keeps all its slots. While False, its reason
	// and message say what is missing, or how it ended.
	ConditionAvailable = "Available"

	// ConditionFinished is True once the reservation has ended; its reason is the final phase. The
	// time of its transition is the time of the end.
	ConditionFinished = "Finished"

	// ConditionProvisioning is True once nodes were requested from an autoscaler, because the reservation fits none that
	// there is: Requested, Accepted, Provisioned, CapacityRevoked or Failed is the reason, as the ProvisioningRequest
	// says, which the message names. False: none can be, and the message says why.
	ConditionProvisioning = "ProvisioningRequested"
)

// SlotStatus shows where a slot is and who uses it.
type SlotStatus struct {
	// Name is the slot's name in the spec.
	Name string `json:"name"`

	// NodeName is the node of the slot: the one of the spec, or the one the server chose.
	NodeName string `json:"nodeName,omitempty"`

	// NodeUID is the UID of that node when it was taken. A node of the same name and another UID is another machine.
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// State says what became of the capacity. Reserved: it is kept, and no pod uses it. Consumed: a pod uses it.
	// Released: it was given back unused. Pending reservations list only slots that were given back.
	State SlotState `json:"state,omitempty"`

	// Pods are the pods that use the slot: the first 1000 divided by the number of slots, where more share it.
	// +listType=atomic
	Pods []PodReference `json:"pods,omitempty"`

	// Devices are the deviceIDs of the devices that the slot keeps, in the order of the spec: at most 1024. They are
	// held again after a restart.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	Devices []string `json:"devices,omitempty"`

	// LostDevices are those of devices, at most 1024, whose ExtendedResource is gone from the node. The slot has them
	// again when their objects come back; until then a pod that uses it is not given them. A server that starts gives the
	// slot others, or has the reservation wait.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	LostDevices []string `json:"lostDevices,omitempty"`
}

// SlotState says whether a slot's capacity is kept, used or given back.
//
// +kubebuilder:validation:Enum=Reserved;Consumed;Released
type SlotState string

const (
	// SlotReserved is capacity that is kept and that no pod uses.
	SlotReserved SlotState = "Reserved"

	// SlotConsumed is capacity that a pod uses.
	SlotConsumed SlotState = "Consumed"

	// SlotReleased is capacity that was given back unused.
	SlotReleased SlotState = "Released"
)

// CountSlots returns how many slots are in a state.
func (s *ReservationStatus) CountSlots(state SlotState) (n int) {
	for i := range s.Slots {
		if s.Slots[i].State == state {
			n++
		}
	}
	return n
}
