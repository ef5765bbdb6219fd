package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// PodRef names a pod. UID is empty only for a pod that does not exist yet.
type PodRef struct {
	Namespace string
	Name      string
	UID       types.UID
}

// String returns namespace/name.
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

func (p PodRef) key() nameKey { return nameKey{p.Namespace, p.Name} }

type nameKey struct{ namespace, name string }

// State is where an allocation is in its life; see the package comment.
type State uint8

// The states of an allocation. NoAllocation says that there is none: a slot keeps the capacity.
const (
	NoAllocation State = iota
	Binding
	Bound
	numStates
)

var stateNames = [numStates]string{"None", "Binding", "Bound"}

// String returns the state's name as the API and the metrics show it.
func (s State) String() string { return stateNames[s] }

// OrReserved returns the name of the state of something that uses capacity: what a slot keeps is Reserved.
func (s State) OrReserved() string {
	if s == NoAllocation {
		return "Reserved"
	}
	return s.String()
}

// Mode says what becomes of a plan of which a part does not fit.
type Mode string

// The modes of a plan.
const (
	// AllOrNothing grants every placement or none.
	AllOrNothing Mode = "AllOrNothing"
	// Partial grants the placements that fit, tried in order.
	Partial Mode = "Partial"
)

// Trusted is the caller that may do everything. It has a budget like others.
const Trusted = "globalreserve:trusted"

// MayAll reports whether a caller may change what others have reserved; one without a name stands for the server
// itself.
func MayAll(caller string) bool { return caller == "" || caller == Trusted }

// Placement asks for capacity for one pod on one node.
type Placement struct {
	Pod       PodRef
	Node      string
	Request   *resources.Request // what the pod asks for; the ledger keeps it, so it must not be changed afterwards
	Scheduler string             // the name of the scheduler that asks
	// Caller is the one whose budget it counts in, or empty, and the owner of a slot in memory: another caller
	// neither changes the slot nor gives it back, unless it is Trusted.
	Caller   string
	Priority int32
	// Slots are those the pod may use, the one it prefers first; slots kept for
	// this pod alone need not be named. The caller has matched them.
	Slots   []SlotRef
	Devices *DeviceRequest // what the pod's claims ask for; nil for a pod without claims
	// Preempt lets StartBind end preemptible slots of lower priority. The caller
	// has found that the pod fits no node without.
	Preempt bool

	// NoDRA says that DRA gives the pod nothing beyond Request.ByDRA: it is being bound, or is to come (ToCome).
	NoDRA bool

	// PodToCome says that what is reserved is a promise for a pod of Scheduler that does not exist yet, see Slot.
	PodToCome bool

	slotNamespace string // of the reservation that a slot is asked for
}

// ToCome says that the pod is to come: DRA has given it nothing, whatever its status says of an attempt before.
func (p *Placement) ToCome() {
	p.NoDRA = true
	if len(p.Request.ByDRA) > 0 {
		request := *p.Request
		request.ByDRA = nil
		p.Request = &request
	}
}

// Slot returns the slot in memory that keeps what the placement asks for until a deadline,
// which is never if it is zero.
func (p *Placement) Slot(deadline time.Time) Slot {
	return Slot{
		Node: p.Node, Request: p.Request, Policy: Once, Scheduler: p.Scheduler, Caller: p.Caller, Priority: p.Priority,
		Pod:   p.Pod,
		Slots: p.Slots, Devices: p.Devices, Deadline: deadline, PodToCome: p.PodToCome, NoDRA: p.NoDRA,
	}
}

// Plan is a set of slots decided in one step.
type Plan struct {
	Slots []Slot
	Mode  Mode
}

// NewPlan returns the plan that keeps in memory what some placements ask for.
func NewPlan(placements []Placement, mode Mode, deadline time.Time) Plan {
	plan := Plan{Slots: make([]Slot, len(placements)), Mode: mode}
	for i := range placements {
		plan.Slots[i] = placements[i].Slot(deadline)
	}
	return plan
}

// Result is the answer to a plan.
type Result struct {
	// Granted is how many slots there are now, those that were there before and those
	// of pods that are bound there included. In mode AllOrNothing it is all or 0.
	Granted int
	// Existing has the slots of reservations that pods of the plan had before, by their
	// index in the plan: those slots of the plan were not made.
	Existing map[int]SlotRef
	// Held has, by index in the plan, the slots in memory whose pods had an allocation or a slot in memory before. These
	// were renewed or moved, and not made anew.
	Held map[int]bool
	// Rejections explains each slot that was refused, in plan order.
	Rejections []Rejection
	// Revision is the ledger's revision the answer is true for.
	Revision uint64
}

// Reason is the kind of a refusal.
type Reason uint8

// The kinds of refusals. Fits is none of them.
const (
	Fits                 Reason = iota
	NodeUnknown                 // the ledger has seen no such node, or it was deleted
	NodeUnschedulable           // cordoned, and the pod does not tolerate it
	InsufficientResource        // a resource, or the pod count, has too little left
	HostPortConflict            // a host port the pod asks for is taken
	AntiAffinity                // the node has a pod, or is kept for one, that the pod must not be with
	AllocatedElsewhere          // the pod already has an allocation on another node
	PodGone                     // the pod was deleted, or has finished
	NotOwner                    // it belongs to another scheduler, or caller
	BindInFlight                // the allocation is being bound, or bound, and cannot be given back
	PodAllocated                // the pod has an allocation already, so no slot is needed
	SlotExists                  // there is another slot of that name, or for that pod
	InsufficientDevices         // the free devices do not meet the pod's claims
	DeviceClaimInUse            // another pod has one of the pod's device claims
	DeviceClaimUnusable         // a device claim does not exist, or cannot be understood
	QuotaExceeded               // the namespace would use more than its ResourceQuota
	ReservedLimit               // the namespace's slots would keep more than the policy allows
	SlotLimit                   // the namespace has as many slots as the policy allows
	CallerLimit                 // what the caller was granted would be more than the policy allows
	GangUnplaced                // there is no capacity for as many others of the pod's gang as it needs at least
	GangIncomplete              // too few pods of its gang exist, or it is not known how many it needs
	GangWaits                   // another gang that could start now comes first
	NumReasons                  // how many there are
)

var reasonNames = [NumReasons]string{
	"Fits", "NodeUnknown", "NodeUnschedulable", "InsufficientResource", "HostPortConflict", "AntiAffinity",
	"AllocatedElsewhere", "PodGone", "NotOwner", "BindInFlight", "PodAllocated", "SlotExists",
	"InsufficientDevices", "DeviceClaimInUse", "DeviceClaimUnusable",
	"QuotaExceeded", "ReservedLimit", "SlotLimit", "CallerLimit",
	"GangUnplaced", "GangIncomplete", "GangWaits",
}

// String returns the reason's name as the API shows it.
func (r Reason) String() string { return reasonNames[r] }

// Rejection explains one refusal with what the ledger had at that moment.
type Rejection struct {
	Pod    PodRef
	Slot   SlotRef // what was asked for, where that was a slot
	Node   string
	Reason Reason
	// Resource is the resource there is too little of, or "hostPort/TCP/80"; for anti-affinity it is the term.
	Resource string
	// Requested and Free are in milli-CPU for cpu, else in the resource's own
	// unit. Free is negative where the node is overcommitted.
	Requested, Free int64
	// DeviceClaim is the claim of devices that could not be met, or is in use.
	DeviceClaim DeviceClaimRef
	// LimitOf is the namespace, or the caller, that has reached Limit of Resource; Free is what is left of it.
	LimitOf string
	Limit   int64
	Detail  string // what is wrong with the pod's claims of devices or its gang, or why nothing of Resource is kept
	// AllocatedOn is the node of the pod's allocation or slot, a movable one included, or of the other slot (SlotExists).
	AllocatedOn string
	// Unlisted is true where nothing in the cluster has ever offered Resource.
	Unlisted bool
	// Holders are the allocations and slots that use most of the resource on the node.
	Holders []Holder
}

// Holder is one allocation or slot that uses some of what a rejected request needed.
type Holder struct {
	Pod       PodRef  // of an allocation, or of a slot in memory
	Slot      SlotRef // of another slot
	Scheduler string
	State     State // NoAllocation of slots
	Amount    int64
}

// maxHolders bounds the holders a rejection lists.
const maxHolders = 5

// NodeObservation is what the API server says of a node.
type NodeObservation struct {
	Name string
	UID  types.UID
	// Allocatable is status.allocatable, see resources.Allocatable.
	Allocatable []resources.Amount
	// DRA are the resources, in order, for which ResourceSlices put devices on the node.
	DRA []resources.Column
	// Unschedulable is spec.unschedulable (cordoned).
	Unschedulable bool
	// Labels are for readers; they decide nothing here. The ledger keeps the map, so it must not be changed afterwards.
	Labels map[string]string
}

// PodObservation is what the API server says of a pod that is bound and has not finished.
type PodObservation struct {
	Pod       PodRef
	Node      string
	Request   *resources.Request
	Scheduler string
	Caller    string // see Placement; as far as the pod says
	Priority  int32
	// Slot is what the pod says it was bound with, or empty.
	Slot            SlotRef
	SlotUID         types.UID      // of the reservation that the slot was of, or empty
	Devices         *DeviceRequest // the pod's claims, and what it was given; nil for a pod without
	ResourceVersion uint64         // orders observations of the same pod; 0 means unknown
}

// Observed is what an ObservePod changed.
type Observed uint8

// The outcomes of ObservePod.
const (
	// ObservedNothing: known already, or older than what is known.
	ObservedNothing Observed = iota
	// ObservedNew: the pod was bound where it had been granted nothing.
	ObservedNew
	// ObservedConfirmed: the pod was bound where it had been granted capacity. Its allocation was
	// Binding there, or a slot was kept there for it alone.
	ObservedConfirmed
	// ObservedMoved: the allocation, or the slot in memory, was on another node.
	ObservedMoved
	// ObservedResized: the pod counts for another amount, or other devices, than before.
	ObservedResized
)

// Verdict is the short answer to whether a pod fits a node.
type Verdict struct {
	Reason Reason
	// Column is the resource that is short (InsufficientResource), unless it is Unlisted: nothing in the cluster has ever
	// named it.
	Column   resources.Column
	Unlisted bool
}

// OfCapacity reports whether the pod would fit if others on the node were gone.
func (r Reason) OfCapacity() bool {
	return r == InsufficientResource || r == HostPortConflict || r == AntiAffinity || r == InsufficientDevices
}

// OfLimit reports whether a refusal is about what somebody may have over all nodes, and so the same on each.
func (r Reason) OfLimit() bool {
	return r == QuotaExceeded || r == ReservedLimit || r == SlotLimit || r == CallerLimit
}

// OfGang reports whether a refusal is for the sake of the pod's gang.
func (r Reason) OfGang() bool { return r == GangUnplaced || r == GangIncomplete || r == GangWaits }

// overLimit reports whether the pod would fit if others of its namespace, or its caller, were gone.
func (v Verdict) overLimit() bool { return v.Reason == QuotaExceeded || v.Reason == CallerLimit }

// Stats are the counts behind the metrics.
type Stats struct {
	Allocations        [numStates]int // by State
	Slots              int            // slots of reservations
	InMemory           int            // slots in memory
	InMemoryExpired    uint64         // of those that ended at their deadline, since the ledger was made
	Nodes              int            // nodes that exist
	OvercommittedNodes int            // nodes with more used than allocatable
}
