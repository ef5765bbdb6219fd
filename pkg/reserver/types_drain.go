package reserver

// DrainPlanRequest is the request of /v1/drain/plan: where would the pods of some nodes go, if the nodes were drained?
type DrainPlanRequest struct {
	// Nodes are the nodes to be drained together, at least one and at most 500.
	Nodes []string
	// Pods are the UIDs of the only pods that go, at most 1000; empty: all of the nodes.
	Pods []string `json:",omitempty"`
	// SkipNamespaces are namespaces whose pods stay.
	SkipNamespaces []string `json:",omitempty"`
	// Drain is what the names of Reservations begin with, before a hyphen, that keep places for this drain already.
	Drain string `json:",omitempty"`
}

// DrainPlanAnswer is the answer to /v1/drain/plan. Nothing of it is kept: what it says is of one revision.
type DrainPlanAnswer struct {
	Revision uint64
	// Unplaced is how many pods have to go that have no place.
	Unplaced int
	// Pods are all pods of the nodes, by node, namespace and name.
	Pods []DrainPod
}

// DrainAction is what a drain does with a pod.
type DrainAction string

const (
	// DrainMove evicts the pod, and another one is made for it, which needs a place.
	DrainMove DrainAction = "Move"
	// DrainEnd evicts the pod, or it goes by itself, and needs no place elsewhere.
	DrainEnd DrainAction = "End"
	// DrainStay leaves the pod where it is.
	DrainStay DrainAction = "Stay"
)

// DrainPod is one pod of a node that is to be drained.
type DrainPod struct {
	Namespace, Pod, UID string
	Node                string
	// OwnerKind and OwnerName name what controls the pod, of a Deployment's pods the Deployment; empty where nothing does.
	OwnerKind string `json:",omitempty"`
	OwnerName string `json:",omitempty"`
	Scheduler string `json:",omitempty"`
	Priority  int32  `json:",omitempty"`
	// Requests and HostPorts are what the pod that is made for it asks for.
	Requests  Amounts  `json:",omitempty"`
	HostPorts []string `json:",omitempty"`
	Action    DrainAction
	// To is the node with the place for it; empty where it has none, or needs none.
	To string `json:",omitempty"`
	// Slot is namespace/name/slot where that place is kept already.
	Slot string `json:",omitempty"`
	// Why says why a pod that has to go has no place, or why one needs none.
	Why string `json:",omitempty"`
	// Unmanaged says that nothing controls the pod that is known to make another one for it.
	Unmanaged bool `json:",omitempty"`
	// Warnings say what of the pod is lost, or is not looked at.
	Warnings []string `json:",omitempty"`
}

// Drain is what the Reservations of one drain have come to: at most 1000 are in an answer. Anybody who may make
// Reservations may put the label of a drain on them.
type Drain struct {
	Name  string
	Nodes []string
	// Owners are what the places are kept for, by namespace and reservation; an owner of many pods has several.
	Owners []DrainOwner
}

// DrainOwner is what one Reservation of a drain keeps for the pods of one owner.
type DrainOwner struct {
	Namespace, Reservation string
	// Owner is a kind, a slash and a name; empty where it is not known what the owner makes.
	Owner string `json:",omitempty"`
	// Done is how many places are used by the pods that were made, and Left how many are kept for those to come.
	Done, Left int
	// WaitsFor says in words what delays the next pod.
	WaitsFor string `json:",omitempty"`
}
