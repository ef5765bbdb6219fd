package gates

import (
	"fmt"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Outcome is how a bind ended, in a word fit for a metric's label.
type Outcome string

// The outcomes. All but Bound come as an *Error.
const (
	Bound          Outcome = "bound"
	Refused        Outcome = "refused"         // by a gate or the ledger; nothing was sent
	PodGone        Outcome = "pod_gone"        // deleted, being deleted, or finished
	UIDMismatch    Outcome = "uid_mismatch"    // the name belongs to another pod now
	BoundElsewhere Outcome = "bound_elsewhere" // the pod is on another node
	Failed         Outcome = "failed"          // not carried out, for the reason in Cause
	Unknown        Outcome = "unknown"         // not known in time; it is still found out
	InFlight       Outcome = "in_flight"       // somebody else is binding the pod
	Busy           Outcome = "busy"            // too many binds in flight; nothing was sent
	Stopping       Outcome = "stopping"        // the server is shutting down; nothing was sent
	NotReady       Outcome = "not_ready"       // nothing can be decided now; nothing was sent
	Changed        Outcome = "changed"         // the pod has another version than the Binding asks for, or was decided on
	NameTaken      Outcome = "name_taken"      // there is a pod of the name of the one to be created
	NotAnnotated   Outcome = "not_annotated"   // the pod to be created does not say what it would be given
	Gated          Outcome = "gated"           // the pod has scheduling gates: the API server does not bind it
)

// Error says why a pod was not bound, or is not known to be.
type Error struct {
	Outcome Outcome
	Pod     ledger.PodRef
	// Node is the node the pod was to be bound to.
	Node string
	// BoundTo is the node the pod is on (BoundElsewhere).
	BoundTo string
	// Why says why nothing can be decided now (NotReady), why a gate refuses (Refused), or what
	// there is too much of (Busy).
	Why string
	// Soon says that it may be otherwise within a second (Busy).
	Soon bool
	// Resize says that the pod was to grow where it is.
	Resize bool
	// Create says that the pod was to be created on the node.
	Create bool
	// Rejection is the ledger's (Refused), nil where a gate refused.
	Rejection *ledger.Rejection
	// Cause is what the API server or the connection to it said, nil if nothing.
	Cause error
}

// Error says what happened and what to do about it.
func (e *Error) Error() string {
	text := e.what()
	if e.Cause != nil {
		return text + ": " + e.Cause.Error()
	}
	return text
}

func (e *Error) what() string {
	switch e.Outcome {
	case Refused:
		if e.Rejection == nil {
			return e.Why
		}
		if e.Resize {
			return fmt.Sprintf("pod %s cannot grow where it is: %s; ask for less, or replace the pod by one that is "+
				"scheduled anew", e.Pod, e.Rejection.Message())
		}
		return e.Rejection.Message()
	case PodGone:
		if e.Pod.UID == "" {
			return fmt.Sprintf("pod %s does not exist; do not schedule it", e.Pod)
		}
		return fmt.Sprintf("pod %s (uid %s) was deleted, is being deleted or has finished; do not schedule it", e.Pod,
			e.Pod.UID)
	case UIDMismatch:
		return fmt.Sprintf("pod %s has another UID than %s: it was deleted and created again; schedule the new pod", e.Pod,
			e.Pod.UID)
	case BoundElsewhere:
		if e.BoundTo == e.Node {
			return fmt.Sprintf("pod %s is bound to node %q already; nothing is left to do", e.Pod, e.BoundTo)
		}
		return fmt.Sprintf("pod %s is bound to node %q already, not to %q; nothing is left to do", e.Pod, e.BoundTo, e.Node)
	case Unknown:
		return fmt.Sprintf("it is not known yet whether pod %s was bound to node %q; its capacity stays reserved there "+
			"until it is, so try that node again", e.Pod, e.Node)
	case InFlight:
		return fmt.Sprintf("pod %s is being bound to node %q by somebody else; wait for that bind to end", e.Pod, e.Node)
	case Busy:
		if e.Why != "" {
			return fmt.Sprintf("%s: %s; try again", e.undone(), e.Why)
		}
		return e.undone() + " because too many binds are in flight; try again"
	case NotReady:
		return e.Why
	case Changed:
		return fmt.Sprintf("pod %s has another resourceVersion by now: it has changed; look at it again", e.Pod)
	case NameTaken:
		return fmt.Sprintf("pod %s already exists", e.Pod)
	case NotAnnotated:
		return fmt.Sprintf("pod %s was not created on node %q: its annotations do not tell what it would be given there, "+
			"which others have got "+
			"meanwhile or another webhook has changed; try again", e.Pod, e.Node)
	case Gated:
		return fmt.Sprintf("pod %s has scheduling gates (spec.schedulingGates), so the API server does not bind it; "+
			"schedule it when they are gone", e.Pod)
	case Stopping:
		return e.undone() + " because the server is shutting down; try again"
	default:
		if e.Node == "" {
			return fmt.Sprintf("pod %s cannot be read, so nothing can be decided on it", e.Pod)
		}
		return fmt.Sprintf("pod %s was not bound to node %q; its capacity was given back, so schedule it again", e.Pod,
			e.Node)
	}
}

// undone says what was not done.
func (e *Error) undone() string {
	if e.Resize {
		return fmt.Sprintf("pod %s was not resized", e.Pod)
	}
	if e.Create {
		return fmt.Sprintf("pod %s was not created on node %q", e.Pod, e.Node)
	}
	return fmt.Sprintf("pod %s was not bound to node %q", e.Pod, e.Node)
}

// Of says which pod and node the error is about.
func (e *Error) Of(pod ledger.PodRef, node string) *Error {
	e.Pod, e.Node = pod, node
	return e
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes the errors of one outcome equal to an Error that has nothing else.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && *t == Error{Outcome: e.Outcome}
}
