// Package reserver is GlobalReserve as a Go program sees it: the interface Reserver
// with the requests, answers and errors that belong to it.
//
// pkg/client implements it: over REST, or without a network by App.Reserver of pkg/app, for a program that has the
// whole server in its own process. One test suite runs against both. A scheduler written for the interface works with
// either.
//
// The types are those of the wire: JSON field names are the Go field names, and
// /openapi.yaml describes them to everybody else. Amounts are integers: milli-CPU
// for cpu, bytes for memory, storage and hugepages, a count for the rest.
//
// # What an error means
//
//	*RefusedError         the answer is no; Answer says why. Nothing was reserved.
//	*BadRequestError      the request makes no sense; sending it again will not help.
//	*UnauthorizedError    the caller may not do that, or is not known.
//	*UnavailableError     there is no answer now, and nothing was done. Try later.
//	*UnknownOutcomeError  it may have been done, or may be done yet. Ask again with
//	                      the same RequestID, or give the capacity back.
//
// All are found with errors.As.
//
// # What may be touched
//
// The package imports nothing but the Kubernetes API types, so that any scheduler can use it. A field added here must
// be added to pkg/http/rest/openapi.yaml; a test there compares both.
package reserver
