package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// SlotRef names a slot: one slot of a reservation.
type SlotRef struct {
	Namespace string
	Name      string // of the reservation
	Slot      string
}

// String returns namespace/name/slot, the form of the matched-reservation annotation.
func (r SlotRef) String() string { return r.Namespace + "/" + r.Name + "/" + r.Slot }

func (r SlotRef) reservation() nameKey { return nameKey{r.Namespace, r.Name} }

// AllocatePolicy says how pods may use a slot.
type AllocatePolicy string

// The allocate policies.
const (
	// Once: the first pod takes the slot; what it does not need is released when it is bound.
	Once AllocatePolicy = "Once"
	// Aligned: pods share the slot and may use the node's free capacity as well.
	Aligned AllocatePolicy = "Aligned"
	// Restricted: pods share the slot, and of the resources it names they may use no more than it has.
	Restricted AllocatePolicy = "Restricted"
)

// Slot is a slot: capacity kept on one node for pods to come. Its pods and the slot together use, of every resource,
// the larger of what the slot keeps and what its pods ask for.
//
// A slot without a Ref is one in memory: only the ledger knows of it. It is for one pod alone (Pod, policy Once), and
// turns into the pod's allocation when the bind of the pod begins.
type Slot struct {
	Ref SlotRef
	// UID is that of the reservation's object; empty where there was no object yet. It distinguishes the slot from one
	// of an earlier reservation of the same name. Views and events have neither UID nor Caller.
	UID  types.UID
	Node string
	// Request is the capacity kept. The ledger keeps the pointer, so it must not be changed afterwards.
	Request     *resources.Request
	Policy      AllocatePolicy
	Scheduler   string
	Caller      string // see Placement
	Priority    int32
	Preemptible bool
	// Pod, if it has a name, is the only pod that may use the slot.
	Pod PodRef
	// Slots are for a request for a slot in memory: the slots that its pod may use, the
	// preferred one first, as the caller has matched them. The slot is made within the
	// first of them on the node that will do, and then counts as a user of that slot.
	Slots []SlotRef
	// Devices are the devices of the node that the slot keeps, or nil. Its pods are given these first. The pods of a
	// Restricted slot are given no other devices of the resources that it names.
	Devices *DeviceRequest
	// Movable says that the pod of a slot in memory may be bound elsewhere, where there is capacity. That ends the slot,
	// which is kept only so that the pod has a place at all.
	Movable bool
	// PodToCome says that Pod did not exist when the slot was asked for: the slot is a promise for a pod of Scheduler. It
	// gives way when the pod is observed and belongs to another scheduler. Views do not have PodToCome.
	PodToCome bool
	// NoDRA is for a request for a slot in memory, see Placement. No other slot has anything by DRA.
	NoDRA bool
	// Deadline is when the slot expires, by the clock of now; zero means never. A slot does not
	// expire while a pod is being bound that uses it.
	Deadline time.Time
	// AvailableAt is since when the slot's Reservation counts as available, by the wall clock; zero for a slot in memory.
	// It is only for readers.
	AvailableAt time.Time

	binds bool           // its pod is being bound: it keeps nothing for later
	share []GivenDevices // the devices that are meant for it, or nil
}

// InMemory reports whether nothing but the ledger knows of the slot.
func (h *Slot) InMemory() bool { return h.Ref.Name == "" }
