package reserver

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Reserver reserves capacity on nodes, for all schedulers of a cluster. Safe for concurrent use.
type Reserver interface {
	// Reserve asks for capacity for each pod on its node. Where the answer is no it is returned with a *RefusedError; a
	// Partial request that was granted in part is no error, its FailedPods are those left out.
	//
	// Every request should have a RequestID: the same one sent again gets the first
	// answer, whatever became of that on the way.
	Reserve(ctx context.Context, r *Request) (*Answer, error)
	// Unreserve gives capacity back: that of the Pods, or a whole Reservation. Capacity that
	// is not held any more is given back already, which is a success. Where some of
	// it was not given back, the answer is returned with a *RefusedError.
	Unreserve(ctx context.Context, r *Request) (*Answer, error)
	// Revision returns the revision the ledger is at. It can be compared only with
	// others of the same run of the server.
	Revision(ctx context.Context) (uint64, error)
}

// Mode says what becomes of a gang of which some pods do not fit.
type Mode string

// The modes of a request.
const (
	// AllOrNothing reserves capacity for all pods or for none. It is the default.
	AllOrNothing Mode = "AllOrNothing"
	// Partial reserves capacity for the pods that fit.
	Partial Mode = "Partial"
)

// Request is the request of Reserve and Unreserve. Fields that mean nothing to Unreserve (Mode, TTLSeconds, DryRun,
// Durable, Name, Namespace) are left out there, and Reservation is for Unreserve alone.
type Request struct {
	// SchedulerName is the scheduler that asks, and which holds the capacity then.
	SchedulerName string
	// Pods ask for capacity. Of a pod the API server has, the server knows the requests
	// itself; of others they are taken from here. Unreserve needs names and UIDs only.
	Pods []*v1.Pod
	// Nodes has one name per pod, in the same order. Unreserve may leave it out.
	Nodes []string `json:",omitempty"`
	// Mode is AllOrNothing where it is empty.
	Mode Mode `json:",omitempty"`
	// TTLSeconds is how long the capacity is kept for pods that are not bound, in
	// seconds; 0 leaves it to the server's policy.
	TTLSeconds int64 `json:",omitempty"`
	// RequestID names the request, so that a repeat gets the first answer: at most
	// 200 bytes, never used for anything else by the same scheduler.
	RequestID string `json:",omitempty"`
	// DryRun asks what the answer would be and changes nothing.
	DryRun bool `json:",omitempty"`
	// MinRevision makes the server wait, for a few seconds at most, until its view is that new. 0 does not wait.
	MinRevision uint64 `json:",omitempty"`
	// Durable writes a Reservation object before the answer, so that the capacity survives the server. nil leaves it to
	// the server: true where the cluster knows the kind, and the gang can be one object: at most 1,000 pods of one
	// namespace, and 512 KiB; or it has a Name or Namespace. A gang that fits only with what Reservations keep for its
	// pods already is given that, in memory. Capacity held in memory only is to be bound through the server's /bind.
	Durable *bool `json:",omitempty"`
	// Name and Namespace are of the object a durable Reserve makes. The namespace is
	// that of the pods; both may be left out.
	Name      string `json:",omitempty"`
	Namespace string `json:",omitempty"`
	// Reservation is namespace/name of one that Unreserve gives back whole, instead of Pods.
	Reservation string `json:",omitempty"`
}

// WhatIfRequest is the request of /v1/whatif: what would Reserve answer, now or if
// some pods were gone? Without Nodes the server proposes some.
type WhatIfRequest struct {
	Request
	// Without are pods that are taken to be gone.
	Without []GonePod `json:",omitempty"`
}

// GonePod names a pod by its UID, or by namespace and name.
type GonePod struct {
	Namespace string `json:",omitempty"`
	Name      string `json:",omitempty"`
	UID       string `json:",omitempty"`
}

// Granted reports whether all that was asked for was done. It is false for a Partial request of which some pods were
// left out, and of an answer without a Revision: that is not the ledger's.
func (a *Answer) Granted() bool { return a.Revision != 0 && a.Error == "" && len(a.FailedPods) == 0 }
