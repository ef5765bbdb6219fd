package reserver

import "time"

// Amounts maps resource names to integers: milli-CPU for cpu, bytes for memory,
// storage and hugepages, a count for the rest.
type Amounts map[string]int64

// Answer is the answer to /reserve and /unreserve.
type Answer struct {
	// FailedPods names the pods that were refused, without their namespaces,
	// as kube-globalreserve does, an older server of that kind. Never null.
	FailedPods []string
	// Error says why nothing was done; empty where something was.
	Error string
	// Revision is the ledger's revision the answer is true for.
	Revision uint64
	// ExpiresAt is when the reservation ends unless its pods are bound by then.
	// A reservation that was there before and lasts longer keeps its own end.
	ExpiresAt time.Time `json:",omitzero"`
	// Durable says that a Reservation object keeps the capacity, so that it outlives the server. Where it is false the
	// capacity is kept in the server's memory: it ends with the server, and is to be bound through the server's /bind.
	Durable bool
	// Reservation is namespace/name of the object that the capacity is written in.
	// Empty where it is kept in memory only, or in several objects that were made before.
	Reservation string `json:",omitempty"`
	// Rejections explain FailedPods, in the same order.
	Rejections []Rejection `json:",omitempty"`
	// Requests are what the pods that were granted ask for together, as it was counted.
	Requests Amounts `json:",omitempty"`
	// Warnings are of what was granted and may not be what was meant: DRA devices that are not kept, pods that ask for
	// nothing, fields that pods do not have, pods without a namespace, and a gang that cannot be one object.
	Warnings []string `json:",omitempty"`
}

// Rejection is one refused pod.
type Rejection struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
	Node           string
	// Reason is the ledger's kind of refusal, such as InsufficientResource, or PodUnknown where the API server has no
	// such pod or could not be asked, PodInvalid where what the pod requests cannot be counted, Refused where the pod
	// may have no capacity whether or not there is some, and WriteFailed where the Reservation object could not be
	// changed.
	Reason string
	// Resource is what there is too little of; "hostPort/TCP/80" for a port, and a term of anti-affinity where that keeps
	// the pod from the node.
	Resource string `json:",omitempty"`
	// Requested and Free are amounts of Resource. Free is negative where the node is overcommitted.
	Requested, Free int64
	// Limit is what the namespace, or the caller, may have of Resource in all; Free is what is left of that then
	// (QuotaExceeded, ReservedLimit, SlotLimit, CallerLimit).
	Limit int64 `json:",omitempty"`
	// DeviceClaim is namespace/name of the claim of devices that is in the way.
	DeviceClaim string `json:",omitempty"`
	// AllocatedOn is the node where the pod has an allocation already.
	AllocatedOn string `json:",omitempty"`
	// Holders are those who hold most of Resource on Node, largest first.
	Holders []Holder `json:",omitempty"`
	// Message says all of it in words, and what to do.
	Message string
}

// Holder is an allocation or a reservation that holds some of what a refused pod asked for.
type Holder struct {
	Namespace string
	Pod       string // of an allocation
	UID       string `json:",omitempty"`
	// Reservation is namespace/name/slot where that is the holder.
	Reservation string `json:",omitempty"`
	Scheduler   string
	State       string
	Amount      int64
}

// Assignment is one pod of a what-if answer on the node it was tried on.
type Assignment struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
	Node           string
	// Fits: there is capacity for it next to the other pods of the request.
	Fits bool
}

// WhatIfAnswer is the answer to /v1/whatif.
type WhatIfAnswer struct {
	FailedPods []string
	Error      string
	Revision   uint64
	Placements []Assignment
	Rejections []Rejection `json:",omitempty"`
	// Requests and Warnings are as in Answer, of the pods that fit.
	Requests Amounts  `json:",omitempty"`
	Warnings []string `json:",omitempty"`
}

// NodeAmount is the account of one resource on a node.
type NodeAmount struct {
	Allocatable int64
	Bound       int64 // used by pods that are bound
	Reserved    int64 // used by allocations that are Binding, and kept by slots
	Free        int64 // negative where the node is overcommitted
}

// Node is the account of one node.
type Node struct {
	Name            string
	UID             string `json:",omitempty"`
	Exists          bool   // false: deleted, but pods are still counted on it
	Unschedulable   bool   // cordoned
	Overcommitted   bool
	AllocationCount int
	Resources       map[string]NodeAmount
	Labels          map[string]string `json:",omitempty"`
	// Pool is the node's pool, as far as its labels name one: the OpenAPI document says which labels.
	Pool string `json:",omitempty"`
	// Devices are the node's devices, ordered by name.
	Devices []NodeDevice `json:",omitempty"`
}

// Device is one device of a node.
type Device struct {
	Name       string // of the ExtendedResource object
	Resource   string
	ID         string
	Properties map[string]string `json:",omitempty"`
	// Unschedulable: it is not given out.
	Unschedulable bool `json:",omitempty"`
}

// NodeDevice is a device and who has it.
type NodeDevice struct {
	Device
	// Free: it can be given out.
	Free bool
	Pods []PodName `json:",omitempty"` // that have it
	// Reservation is namespace/name/slot of what keeps it.
	Reservation string `json:",omitempty"`
}

// DRADevice is a device of DRA whose ResourceSlice names the node, and who has it.
type DRADevice struct {
	Driver, Pool, Name string
	// Double: more of it is allocated than there is, by writes that the server did not decide on.
	Double bool       `json:",omitempty"`
	Claims []DRAClaim `json:",omitempty"` // that have it, or a share of it
}

// DRAClaim is a ResourceClaim that has a device. All but its State is empty where the caller may not see its namespace.
type DRAClaim struct {
	Namespace string `json:",omitempty"`
	Claim     string `json:",omitempty"`
	UID       string `json:",omitempty"`
	// State is Granted, while the write that allocates the device was allowed and not seen yet, or Allocated.
	State string
	Pods  []string `json:",omitempty"` // that it is reserved for, of its namespace
}

// GivenDevices are the devices that one claim of devices was given.
type GivenDevices struct {
	// Namespace, Claim and UID name the ExtendedResourceClaim; all are empty where a slot
	// keeps devices for none in particular.
	Namespace string `json:",omitempty"`
	Claim     string `json:",omitempty"`
	UID       string `json:",omitempty"`
	// Resource is empty where it is not known any more.
	Resource string   `json:",omitempty"`
	IDs      []string `json:",omitempty"`
}

// Allocation is one pod's share of one node.
type Allocation struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
	Node           string
	State          string // Binding or Bound
	Scheduler      string
	Priority       int32
	Requests       Amounts
	HostPorts      []string `json:",omitempty"` // "TCP/0.0.0.0:80"
	// Reservation is namespace/name/slot of what the pod uses; of it and the pods that use it, the larger counts.
	Reservation string `json:",omitempty"`
	// Devices are what the pod was given, claim by claim.
	Devices []GivenDevices `json:",omitempty"`
}

// RevisionAnswer is the answer to /v1/revision.
type RevisionAnswer struct {
	Revision uint64
}

// NodesAnswer is the answer to /v1/nodes.
type NodesAnswer struct {
	Revision uint64
	Nodes    []Node
	// Continue is to be sent as ?continue= for the next page; empty at the end.
	Continue string `json:",omitempty"`
}

// NodeAnswer is the answer to /v1/nodes/{name}.
type NodeAnswer struct {
	Revision    uint64
	Node        Node
	Allocations []Allocation
	Slots       []NodeSlot // the capacity that reservations keep there, those in memory included
	// DRADevices are the devices of DRA whose ResourceSlice names the node, by driver, pool and name. Those for all nodes,
	// or by a selector, are not among them. There are none while the server has not read ResourceSlices and
	// ResourceClaims.
	DRADevices []DRADevice `json:",omitempty"`
}

// AllocationsAnswer is the answer to /v1/allocations.
type AllocationsAnswer struct {
	Revision    uint64
	Allocations []Allocation
	Continue    string `json:",omitempty"`
}

// ExplainAnswer is the answer to /v1/explain.
type ExplainAnswer struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
	Scheduler      string
	// State is Pending, Reserved, Binding, Bound, Deleting or Finished.
	State     string
	Node      string    `json:",omitempty"` // where it is, or has its capacity
	ExpiresAt time.Time `json:",omitzero"`
	// Reservation is namespace/name/slot of the capacity the pod has, uses or may use.
	Reservation string `json:",omitempty"`
	Requests    Amounts
	Revision    uint64
	// Message sums up the rest.
	Message string
	// Gang is that of the pod, if it is a member of one.
	Gang *Gang `json:",omitempty"`
	// Of pending pods: how many nodes there are, on how many there is capacity.
	NodeCount, FitCount int
	FitExamples         []string       `json:",omitempty"`
	Refusals            []RefusalGroup `json:",omitempty"`
	Closest             *ClosestNode   `json:",omitempty"`
}

// RefusalGroup is a set of nodes that refuse a pod for the same reason.
type RefusalGroup struct {
	Reason   string
	Resource string `json:",omitempty"`
	Nodes    int
	Examples []string
}

// ClosestNode is the node where a pending pod lacks least.
type ClosestNode struct {
	Node    string
	Missing []MissingAmount
	// Holders hold most of the first missing resource, largest first.
	Holders []Holder `json:",omitempty"`
	Message string
}

// MissingAmount is how much of one resource a node lacks for a pod.
type MissingAmount struct {
	Resource                 string
	Requested, Free, Missing int64
}

// BindAnswer is the answer to /bind.
type BindAnswer struct {
	// Error says why the pod was not bound, or is not known to be; empty where it was.
	Error string
	// Outcome is a word for Error; see BindError. Also unknown, busy, stopping and not_ready.
	Outcome string `json:",omitempty"`
	// Reason is why the ledger has refused; empty where it was not the ledger but a gate.
	Reason string `json:",omitempty"`
	// Revision is the ledger's at which the pod was bound or refused, or a later one; 0 after all other outcomes.
	Revision uint64 `json:",omitempty"`
}
