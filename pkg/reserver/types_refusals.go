package reserver

import "time"

// RefusalsAnswer is the answer to /v1/refusals.
type RefusalsAnswer struct {
	Revision uint64
	// Instance distinguishes this run of the server from others: the numbers of refusals begin anew with each.
	Instance string
	// Refusals are in order, the oldest first.
	Refusals []Refusal
	// After is to be sent as ?after= to get what comes next.
	After uint64
}

// Refusal is one pod that one call refused.
type Refusal struct {
	// Number is one more than that of the refusal before. One that is missing is forgotten, or was not asked for.
	Number uint64
	Time   time.Time
	// Path is filter, bind, admission, resize, reserve, plugin, object or watch.
	Path string
	// Caller is who asked, and Scheduler for which scheduler.
	Caller    string `json:",omitempty"`
	Scheduler string `json:",omitempty"`
	// Observed says that the pod has got the node all the same: the server only observes.
	Observed bool `json:",omitzero"`
	// Warned says that it went ahead all the same, with a warning to the caller: the admission webhook only warns.
	Warned bool `json:",omitzero"`
	// Times is how often a Binding was refused by then that its scheduler asks for again and again: 10, 100 and so on.
	// Those between are not reported. It is missing the first time.
	Times int `json:",omitzero"`
	// Reservation is namespace/name/slot of what was refused, where that was a slot of a Reservation object.
	Reservation string `json:",omitempty"`
	// Rejection has the node that was asked about. Where these were many it is the one where the pod lacked least.
	Rejection Rejection
	// Reasons counts the nodes that filter was asked about by the reason they were refused for; all of them were.
	Reasons map[string]int `json:",omitempty"`
}

// PendingAnswer is the answer to /v1/pending.
type PendingAnswer struct {
	Revision uint64
	// Pods are in order, those that wait longest first.
	Pods []PendingPod
	// Needs are the sizes of the nodes that are waited for, for those who add nodes: what the pods of this page
	// need, and on the first page the Reservation objects that fit no node, 500 at most. Of a gang all pods without a node
	// count.
	Needs []NodeNeed
	// Continue is to be sent as ?continue= for the next page; empty at the end. A page may have fewer pods than asked for.
	Continue string `json:",omitempty"`
}

// NodeNeed is what a node has to have free for one pod, or one slot of a Reservation object, that waits for that.
type NodeNeed struct {
	// Namespace is that of the one of the three that waits: a pod that is useful alone, the pods of a gang, or the slots
	// of a Reservation object.
	Namespace              string
	Pod, Gang, Reservation string `json:",omitempty"`
	// Count is how many pods of the gang, or slots of the Reservation, need as much.
	Count int
	// Requests is what one of them needs.
	Requests Amounts
	// NodeSelector is what the node has to be labeled with, for slots.
	NodeSelector map[string]string `json:",omitempty"`
	// NewNode says that no node has as much, even empty.
	NewNode bool `json:",omitempty"`
}

// PendingPod is a pod that was refused and has no node since.
type PendingPod struct {
	// Since is when it was refused first, LastRefused when last, and Times how often.
	Since, LastRefused time.Time
	Times              int
	// Path and LastReason are of its last refusal.
	Path, LastReason string
	// WaitsFor is server, permission, gang, reservation, scheduler, limit, node, devices or capacity. It is node where
	// no node has as much as it asks for, even empty.
	WaitsFor string
	// Explanation is what /v1/explain answers for it.
	Explanation ExplainAnswer
}
