package store

import (
	"errors"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what the answer to a request says of its fate.
type Outcome uint8

// The outcomes.
const (
	// Done: carried out.
	Done Outcome = iota
	// Exists: not carried out, there is an object of that name.
	Exists
	// Missing: there is no object of that name.
	Missing
	// Refused: not carried out, and the next try would not be either.
	Refused
	// NotSent: not carried out, but the next try may be.
	NotSent
	// Unknown: carried out, or not, or not yet.
	Unknown
)

// Classify tells what the error of a request says of its fate.
func Classify(err error) Outcome {
	var status apierrors.APIStatus
	var op *net.OpError
	switch {
	case err == nil:
		return Done
	case apierrors.IsAlreadyExists(err):
		return Exists
	case isMissing(err):
		return Missing
	case errors.As(err, &status):
		return classifyCode(int(status.Status().Code))
	case errors.As(err, &op) && op.Op == "dial":
		return NotSent
	default:
		return Unknown
	}
}

// classifyCode relies on the order in which the API server works: what it
// answers with a 4xx it found out before it wrote anything.
func classifyCode(code int) Outcome {
	switch {
	case code == http.StatusTooManyRequests:
		return NotSent
	case code == http.StatusRequestTimeout:
		return Unknown
	case code >= 400 && code < 500:
		return Refused
	default:
		return Unknown
	}
}

// isMissing reports whether the API server itself says that the object does not
// exist. A 404 may also be about the namespace or the whole resource, or come
// from something on the way to the API server.
func isMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
