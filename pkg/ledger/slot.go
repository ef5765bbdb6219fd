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

// String returns namespace/name/slot, the form of the matched-reservation
// annotation.
func (r SlotRef) String() string { return r.Namespace + "/" + r.Name + "/" + r.Slot }

func (r SlotRef) reservation() nameKey { return nameKey{r.Namespace, r.Name} }

// AllocatePolicy says how pods may use a slot.
type AllocatePolicy string

// The allocate policies.
const (
	// Once: the first pod takes the slot; what it does not need is released
	// when it is bound.
	Once AllocatePolicy = "Once"
	// Aligned: pods share the slot and may use the node's free capacity as well.
	Aligned AllocatePolicy = "Aligned"
	// Restricted: pods share the slot, and of the resources it names they may
	// use no more than it has.
	Restricted AllocatePolicy = "Restricted"
)

// Slot is a slot: capacity kept on one node for pods to come. Its pods and the slot
// together use, of every resource, the larger of what the slot keeps and what its
// pods ask for.
//
// A slot without a Ref is one in memory: nothing but the ledger knows of it. It is
// for one pod alone (Pod, policy Once) and turns into its pod's allocation when the bind
// of the pod begins.
type Slot struct {
	Ref SlotRef
	// UID is that of the reservation's object; empty where there was none yet. It
	// tells the slot from one of an earlier reservation of the name. Views and
	// events do not have it, nor Caller.
	UID  types.UID
	Node string
	// Request is the capacity kept. The ledger keeps the pointer, so it must not be
	// changed afterwards.
	Request     *resources.Request
	Policy      AllocatePolicy
	Scheduler   string
	Caller      string // see Placement
	Priority    int32
	Preemptible bool
	// Pod, if it has a name, is the only pod that may use the slot.
	Pod PodRef
	// Slots are, of a slot in memory that is asked for, the slots its pod may use, the
	// one it prefers first. The slot is made within the first on the node that will do:
	// then it counts as one of those who use that slot. The caller has matched them.
	Slots []SlotRef
	// Devices are what the slot keeps of the node's devices, or nil. They are its own:
	// its pods are given these first. Of the resources it names a Restricted slot's
	// pods are given no others.
	Devices *DeviceRequest
	// Movable says of a slot in memory that its pod may be bound elsewhere, where there is capacity, which ends the
	// slot: it is kept so that the pod has a place at all.
	Movable bool
	// Unborn says that Pod did not exist when the slot was asked for: it is a promise for a pod of Scheduler. It
	// gives way when the pod is observed and another scheduler's. Views do not have it.
	Unborn bool
	// Deadline is when the slot expires, by the clock of now; zero means never. A slot does not
	// expire while a pod is being bound that uses it.
	Deadline time.Time

	binds bool // its pod is being bound: nothing is kept by it for later
}

// InMemory reports whether nothing but the ledger knows of the slot.
func (h *Slot) InMemory() bool { return h.Ref.Name == "" }
