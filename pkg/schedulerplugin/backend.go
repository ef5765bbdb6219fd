package schedulerplugin

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Backend is the account that the plugin decides on. One backend serves all
// profiles of a scheduler. It is safe for concurrent use.
type Backend interface {
	// Ledger is what Filter reads: the ledger itself or a mirror of it.
	Ledger() ledger.Reader
	// Question is how pods ask Ledger for capacity.
	Question() *question.Maker
	// Ready returns nil where decisions can be made now, else an *UnavailableError.
	Ready() error
	// Reserve takes capacity for a pod on the placement's node. made says that the pod
	// had no allocation before, so that Unreserve may end it; it is true with an error where
	// that may have been done. The error is a *RefusedError, an *UnavailableError, or one
	// that says what went wrong.
	Reserve(ctx context.Context, pod *v1.Pod, p *ledger.Placement) (made bool, err error)
	// ReserveAll takes capacity for the pods of a gang, for all of them or for none. made says of each what Reserve
	// says of one, and the errors are the same; where there is one nothing was done, or it is given back.
	ReserveAll(ctx context.Context, gang []Member) (made []bool, err error)
	// Advise says why a member of a gang is to be refused by all nodes, as its gang cannot start, or Fits. It is asked
	// for pods that are placed one by one; the backend has a pod that it refused woken. Fits may be said of any gang.
	Advise(pod *cluster.Pod) ledger.Reason
	// Refused tells that a pod was refused some nodes, and nothing has left it another one. It does not wait.
	Refused(pod *cluster.Pod, nodes []string)
	// Unreserve gives back what Reserve has made. Where that fails, the allocation ends at
	// its deadline.
	Unreserve(ctx context.Context, p *ledger.Placement)
	// Bind binds a pod, and reserves its capacity where that was not done or has ended.
	// It returns an *UnavailableError only where nothing was done. Where the pod's gang was refused, a backend in
	// this process returns a *RefusedError.
	Bind(ctx context.Context, pod *cluster.Pod, node string) error
	// Caught waits until Ledger has what the account had at a revision of a
	// *RefusedError, or ctx ends.
	Caught(ctx context.Context, revision uint64)
	// Wait returns when the backend has stopped, after its context has ended, and reports
	// what was wrong with its end.
	Wait() error
}

// Scheduler is the scheduler around a backend, as that needs it. No call blocks.
type Scheduler struct {
	// HasProfile reports whether pods of a scheduler's name are the plugin's.
	HasProfile func(name string) bool
	// ClaimChanged has to hear whenever a claim of devices came, went or was made anew.
	ClaimChanged func(namespace, name string)
	// Wake has a pod tried again that Advise has refused.
	Wake func(pod *cluster.Pod)
	// Matched has to hear when it becomes known, after the capacity was reserved, that pods of
	// a namespace may use it.
	Matched func(namespace string)
	// Mapped has to hear, after Ledger, of resources that DeviceClasses leave to DRA and did not before.
	Mapped func(resources []string)
}

// RefusedError says that the account has no capacity for the pod on the node.
type RefusedError struct {
	// Reason is zero where it is not one that is known here.
	Reason ledger.Reason
	// Message tells all of it, for logs.
	Message string
	// Revision is the account's at that moment.
	Revision uint64
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// Unavailability is why no decision can be made.
type Unavailability uint8

// The kinds of unavailability.
const (
	Starting Unavailability = iota // it is not known yet whether the account comes
	Away                           // the server cannot be reached
	Behind                         // the mirror is too far behind the server
	Denied                         // the server does not let this scheduler ask

	available // there is none
)

// UnavailableError says that no decision can be made now.
type UnavailableError struct {
	Kind  Unavailability
	Cause error // nil where there is nothing more to say
}

// Error implements error.
func (e *UnavailableError) Error() string {
	if e.Cause != nil {
		return unavailable[e.Kind] + ": " + e.Cause.Error()
	}
	return unavailable[e.Kind]
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// kindOf is the kind of unavailability that an error tells of.
func kindOf(err error) Unavailability {
	if u := asUnavailable(err); u != nil {
		return u.Kind
	}
	return available
}

// asUnavailable finds an *UnavailableError in an error, nil where there is none.
func asUnavailable(err error) *UnavailableError {
	if u := (*UnavailableError)(nil); errors.As(err, &u) {
		return u
	}
	return nil
}
