// Package openapi holds what clients ask GlobalReserve, and what they are answered, against the document that it
// publishes, pkg/http/rest/openapi.yaml. Whatever the document does not say is a violation: a route, a status, a
// media type, a parameter, a field of an answer. A request that the document does not allow is none where it was
// refused: tests send such on purpose. Streams are looked at event by event, while they are read.
//
// There are two places to stand: Transport, in a client of the test's own process, and Proxy, in front of a server, for
// clients that are other programs. Violations are reported to the test that asked for it, with the route and the field.
package openapi
