package schedulerplugin

import (
	"context"
	"errors"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

// Backend is the server in the scheduler's process, with the ledger that the plugin decides on. One backend serves all
// profiles of a scheduler. It is safe for concurrent use.
type Backend interface {
	// Ledger is what Filter reads.
	Ledger() ledger.Reader
	// Question is how pods ask Ledger for capacity.
	Question() *placement.Builder
	// Ready reports whether decisions can be made now.
	Ready() bool
	// Reserve takes capacity for a pod on the placement's node. made says that the pod had no allocation before, so that
	// Release may end it. The error is a *RefusedError, ErrNotReady, or one that says what went wrong.
	Reserve(p *ledger.Placement) (made bool, err error)
	// ReserveAll takes capacity for the pods of a gang, for all of them or for none. made says of each what Reserve
	// says of one, and the errors are the same; where there is one nothing was done.
	ReserveAll(gang []ledger.Placement) (made []bool, err error)
	// Advise says why a member of a gang is to be refused by all nodes, as its gang cannot start, or Fits. It is asked
	// for pods that are placed one by one; the backend has a pod that it refused woken. Fits may be said of any gang.
	Advise(pod *cluster.Pod) ledger.Reason
	// Refused tells that a pod was refused some nodes, and nothing has left it another one. It does not wait.
	Refused(pod *cluster.Pod, nodes []string)
	// Release gives back what Reserve has made.
	Release(p *ledger.Placement)
	// Bind binds a pod, and reserves its capacity where that was not done or has ended. Where the pod's gang was refused
	// the error is a *RefusedError.
	Bind(ctx context.Context, pod *cluster.Pod, node string) error
	// Host leaves the pods of a profile to w, which wakes them; see waiting.Pods.Host.
	Host(profile string, w *waiting.Pods)
	// Wait returns when the backend has stopped, after its context has ended, and reports
	// what was wrong with its end.
	Wait() error
}

// RefusedError says that the ledger has no capacity for the pod on the node.
type RefusedError struct {
	// Reason is Fits where a gate has refused, and not the ledger.
	Reason ledger.Reason
	// Message tells all of it, for logs.
	Message string
	// Revision is the ledger's at that moment.
	Revision uint64
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// ErrNotReady says that no decision can be made now. Its text is also what pods are told.
var ErrNotReady = errors.New("GlobalReserve: the ledger is not complete yet")
