package reserver

import (
	"errors"
	"fmt"
	"time"
)

// RefusedError says that the request was understood and the answer is no.
type RefusedError struct {
	// Answer is never nil. Its Rejections say what each pod lacks; they are empty
	// where the reason is none of the pods', such as a MinRevision not reached.
	Answer *Answer
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Answer.Error }

// BadRequestError says that the request makes no sense to the server, and was not carried out.
type BadRequestError struct {
	// Status is the HTTP status, 4xx; 3xx where the URL is not the server's own.
	Status int
	// Message says what is wrong with it.
	Message string
}

// Error implements error.
func (e *BadRequestError) Error() string { return e.Message }

// UnauthorizedError says that the server does not know the caller, or the caller may not do that. Nothing was done.
type UnauthorizedError struct {
	Status  int // 401 or 403
	Message string
}

// Error implements error.
func (e *UnauthorizedError) Error() string { return e.Message }

// UnavailableError says that the server cannot answer now, or cannot be reached. Nothing was done, and nothing will be.
type UnavailableError struct {
	// RetryAfter is how long the server asks to wait; 0 where it says nothing.
	RetryAfter time.Duration
	// Permanent: asking again does not help before somebody changes something, such as the server's URL.
	Permanent bool
	Err       error
}

// Error implements error.
func (e *UnavailableError) Error() string { return "not available: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *UnavailableError) Unwrap() error { return e.Err }

// UnknownOutcomeError says that the request was sent, and that no answer came which says what became of it. It may have
// been carried out, or may be yet.
type UnknownOutcomeError struct {
	// RequestID is what to send again to learn what became of it; empty where the request has none, as a bind.
	RequestID string
	Err       error
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("it is not known what became of the request: %s", e.Err)
	}
	return fmt.Sprintf("it is not known what became of request %q; send it again with that RequestID: %s", e.RequestID,
		e.Err)
}

// Unwrap returns the reason.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// BindError says that a pod was not bound.
type BindError struct {
	// Outcome is a word for the reason: refused (by the ledger), pod_gone,
	// uid_mismatch, bound_elsewhere, changed (since it was decided on: look at it again),
	// in_flight (somebody else is binding it), gated (it has scheduling gates) or failed.
	Outcome string
	Message string
	// Reason and Revision are those of the BindAnswer.
	Reason   string
	Revision uint64
}

// Error implements error.
func (e *BindError) Error() string { return e.Message }

// NewBindError returns the error that an answer to /bind with an Error stands for:
// a *BindError, *UnavailableError or *UnknownOutcomeError.
func NewBindError(answer *BindAnswer) error {
	switch answer.Outcome {
	case "unknown":
		return &UnknownOutcomeError{Err: errors.New(answer.Error)}
	case "busy", "stopping", "not_ready":
		return &UnavailableError{Err: errors.New(answer.Error)}
	default:
		return &BindError{Outcome: answer.Outcome, Message: answer.Error, Reason: answer.Reason, Revision: answer.Revision}
	}
}
