// Package rest is the HTTP interface for gang and batch schedulers and
// for people: POST /reserve and /unreserve, the JSON read side under /v1/, the
// stream of changes GET /v1/watch, and /openapi.yaml, which describes them all.
//
// It is a thin adapter around pkg/arbiter and its folder gang: a handler decodes a bounded request,
// checks every field, asks the arbiter once and writes the answer. Reads ask the ledger
// itself. Nothing here adds up resources, or chooses nodes.
//
// # The wire format
//
// JSON field names are the Go field names of the types in pkg/reserver; requests may
// spell them in any case. The fields SchedulerName, Pods and Nodes, and the
// answer's FailedPods and Error, are those of kube-globalreserve (github.com/IBM/kube-globalreserve), an
// older server that schedulers ask for capacity before they bind: its clients
// work unchanged; everything else is optional. A top-level field that the server
// does not know is refused, because a misspelled "DryRun" must not reserve.
//
// A refusal of the ledger is an answer: status 200, with Error and FailedPods. A
// request that makes no sense gets 4xx and changes nothing.
//
// Amounts are integers: milli-CPU for cpu, bytes for memory, storage and
// hugepages, a count for the rest.
//
// # A watch
//
// /v1/watch sends changes in lines of JSON (stream.go). Each line has what is ready (batch.go), and is encoded once for
// all watchers.
//
// # Who sees what
//
// A caller sees the names of pods and reservations where it may list the pods of their namespace (reader.go), and
// amounts elsewhere. The texts of refusals are read by more people than the one who asked, in Events for example. So
// pkg/ledger puts nothing into them that is of another namespace than the pod's.
//
// # In the same process
//
// An API is a reserver.Reserver, too (goapi.go). Such calls skip the decoding, and share the checks, the decision and
// the replay with the handlers. pkg/client has the tests that both integration paths must pass.
//
// # Repeats
//
// A request with a RequestID is decided once: its repeats, concurrent ones
// included, get the first answer (replay.go). There is one exception: the server
// never says that capacity is kept which is not. A repeat of a granted request whose
// reservation has ended since is told so.
//
// # Durable reservations
//
// A durable /reserve writes its Reservation object before it answers:
//
//	capacity in the ledger --> create --> known to be there -----------> 200, granted
//	       |                 |    \-> known not to be there --------> capacity given back; 200, Error
//	       |                 \-> unknown: read back, create again,
//	     refused                 until storeTimeout ---------------> 502; then read in the background, and
//	       |                                                         given back if it was not created
//	       \-> 200, Error and Rejections
//
// The object's name makes all of that repeatable (pkg/arbiter/gang). Slots have no
// deadline until their object says when it was created. pkg/reservations follows the
// objects: it ends slots whose objects go, and deletes objects that are used up.
//
// # What may be touched
//
// A field or route added here must be added to openapi.yaml; a test compares
// both. Bounds on what a client may send are in limits.go.
package rest
