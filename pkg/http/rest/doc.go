// Package rest is the HTTP interface for gang and batch schedulers and for people: POST /reserve and /unreserve, the
// JSON read side under /v1/, the stream of changes GET /v1/watch, and /openapi.yaml, which describes them all.
// docs/rest.md says what callers may rely on.
//
// It is a thin adapter around pkg/decide and its folder reserve: a handler decodes a bounded request, checks every
// field, asks the arbiter once and writes the answer. Reads ask the ledger itself. Nothing here adds up resources, or
// chooses nodes.
//
// JSON field names are the Go field names of the types in pkg/reserver; requests may spell them in any case. A
// top-level field that the server does not know is refused, because a misspelled "DryRun" must not reserve. A caller
// sees the names of pods and reservations where it may list the pods of their namespace (reader.go). The texts of
// refusals are read by more people than the one who asked, so pkg/ledger puts nothing into them that is of another
// namespace than the pod's.
//
// A request with a RequestID is decided once: its repeats get the first answer (replay.go), but never one that grants
// capacity which is not kept. A durable /reserve writes its Reservation object before it answers:
//
//	capacity in the ledger --> create --> known to be there -----------> 200, granted
//	       |                 |    \-> known not to be there --------> capacity given back; 200, Error
//	       |                 \-> unknown: read back, create again,
//	     refused                 until storeTimeout ---------------> 502; then read in the background, and
//	       |                                                         given back if it was not created
//	       \-> 200, Error and Rejections
//
// The object's name makes all of that repeatable (pkg/decide/reserve).
//
// What may be touched: a field or route added here must be added to openapi.yaml; a test compares both. A field of a
// node also goes into reserver.WatchedNode (watch.go), or the live page's map never has it. Bounds on
// what a client may send are in limits.go.
package rest
