package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// HoldRef names a hold: one slot of a reservation.
type HoldRef struct {
	Namespace string
	Name      string // of the reservation
	Slot      string
}

// String returns namespace/name/slot, the form of the matched-reservation
// annotation.
func (r HoldRef) String() string { return r.Namespace + "/" + r.Name + "/" + r.Slot }

func (r HoldRef) reservation() nameKey { return nameKey{r.Namespace, r.Name} }

// AllocatePolicy says how pods may use a hold.
type AllocatePolicy string

// The allocate policies.
const (
	// Once: the first pod takes the hold; what it does not need is released
	// when it is bound.
	Once AllocatePolicy = "Once"
	// Aligned: pods share the hold and may use the node's free room as well.
	Aligned AllocatePolicy = "Aligned"
	// Restricted: pods share the hold, and of the resources it names they may
	// use no more than it has.
	Restricted AllocatePolicy = "Restricted"
)

// Hold is a slot: capacity kept on one node for pods to come. Its pods and the slot
// together use, of every resource, the larger of what the slot keeps and what its
// pods ask for.
//
// A slot without a Ref is one in memory: nothing but the ledger knows of it. It is
// for one pod alone (Pod, policy Once) and turns into its pod's claim when the bind
// of the pod begins.
type Hold struct {
	Ref HoldRef
	// UID is that of the reservation's object; empty where there was none yet. It
	// tells the hold from one of an earlier reservation of the name. Views and
	// events do not have it.
	UID  types.UID
	Node string
	// Request is the room kept. The ledger keeps the pointer, so it must not be
	// changed afterwards.
	Request     *resources.Request
	Policy      AllocatePolicy
	Scheduler   string
	Priority    int32
	Preemptible bool
	// Pod, if it has a name, is the only pod that may use the hold.
	Pod PodRef
	// Holds are, of a slot in memory that is asked for, the slots its pod may use, the
	// one it prefers first. The slot is made within the first on the node that will do:
	// then it counts as one of those who use that slot. The caller has matched them.
	Holds []HoldRef
	// Devices are what the hold keeps of the node's devices, or nil. They are its own:
	// its pods are given these first. Of the resources it names a Restricted hold's
	// pods are given no others.
	Devices *DeviceRequest
	// Deadline is when the hold expires; zero means never. A hold does not
	// expire while a pod is being bound that uses it.
	Deadline time.Time
}

// InMemory reports whether nothing but the ledger knows of the slot.
func (h *Hold) InMemory() bool { return h.Ref.Name == "" }
