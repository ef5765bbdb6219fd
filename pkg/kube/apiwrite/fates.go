package apiwrite

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

// Fate is what became of a request, according to its answer.
type Fate uint8

// The fates. The zero value is that of a request of unknown fate.
const (
	// Unknown: carried out, or not, or not yet.
	Unknown Fate = iota
	// Done: carried out.
	Done
	// Exists: not carried out, there is an object of that name.
	Exists
	// Missing: not carried out, there is no such object.
	Missing
	// Conflict: not carried out if a live read shows why, else unknown.
	Conflict
	// Refused: not carried out, and the next try would not be either.
	Refused
	// NotSent: not carried out, but the next try may be.
	NotSent
)

// Of returns the fate of a request about one object of a resource, named
// as in URLs, according to the error of the request.
func Of(resource string, err error) Fate {
	var status apierrors.APIStatus
	var op *net.OpError
	switch {
	case err == nil:
		return Done
	case apierrors.IsAlreadyExists(err):
		return Exists
	case isMissing(resource, err):
		return Missing
	case errors.As(err, &status):
		return classifyCode(int(status.Status().Code))
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, election.ErrNotSent):
		return NotSent
	default:
		return Unknown
	}
}

// classifyCode relies on the order in which the API server works: it answers with a 4xx before it writes anything. 409
// is the exception: it also answers that for errors of its storage, timeouts included, that it has no better code for.
func classifyCode(code int) Fate {
	switch {
	case code == http.StatusTooManyRequests:
		return NotSent
	case code == http.StatusConflict:
		return Conflict
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		return Refused
	default:
		return Unknown
	}
}

// isMissing reports whether the API server itself says that an object does not exist. A 404 may also be about the
// namespace or the whole resource, be an admission webhook's, or come from something on the way to the API server,
// which then knows nothing of an earlier request.
func isMissing(resource string, err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// The pauses between the tries of a write grow from the first to the longest.
const (
	FirstPause          = 50 * time.Millisecond
	LongestPause        = time.Second     // while somebody waits
	LongestPauseOverdue = 5 * time.Second // afterwards
)

// Write follows one write until its fate is known. It may be sent several times:
// the UID in a Binding and the name of an object make that harmless.
type Write struct {
	pause time.Duration // before the last try
	// Lost is when the last request of unknown fate was sent; zero if there is none.
	Lost time.Time
}

// Sent records the fate of a request. One whose fate is unknown may have been
// carried out, or may still be waiting in the API server.
func (w *Write) Sent(at time.Time, said Fate) {
	if said == Unknown || said == Conflict {
		w.Lost = at
	}
}

// InDoubt reports whether a request may have been carried out although no answer said so.
func (w *Write) InDoubt() bool { return !w.Lost.IsZero() }

// Over reports whether at a moment no request could still be carried out, because
// the API server gives up on each within settle.
func (w *Write) Over(at time.Time, settle time.Duration) bool {
	return !w.InDoubt() || at.Sub(w.Lost) > settle
}

// Next returns the pause before the next try. It is up to a quarter longer than it
// need be, so that the writes of an outage do not all return at once.
func (w *Write) Next(longest time.Duration, cause error) time.Duration {
	w.pause = min(max(2*w.pause, FirstPause), longest)
	pause := max(w.pause, suggested(cause))
	return pause + rand.N(pause/4+1) //nolint:gosec // nobody gains by guessing it
}

// suggested is the pause an answer of the API server asks for.
func suggested(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(time.Duration(seconds)*time.Second, LongestPauseOverdue)
	}
	return 0
}
