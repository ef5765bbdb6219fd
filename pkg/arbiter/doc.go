// Package arbiter and its folder gang are the only place that decides on requests. Every integration path (extender,
// REST, Go API, plugin, admission) decodes a request, asks the arbiter, and encodes the answer.
//
//	request -> which pod?          pods.go        the API server's copy, never the request's
//	        -> the question        pkg/placement  what it requests, its slots, its devices
//	        -> the gates           pkg/gates      may it be given anything at all?
//	        -> the ledger          pkg/ledger     is there capacity?
//	        -> carry out           flight.go      the Binding, until its fate is known
//
// A flight sends one Binding, with the pod's UID and resourceVersion as preconditions (apiserver pkg/storage,
// Preconditions.Check): what was decided holds for that version alone. Repeats of a bind join its flight, and a caller
// that hangs up ends nothing. A POST that times out, loses its connection or gets a 5xx, or a 409 that a live read does
// not explain (kubernetes pkg/registry/core/pod/storage, BindingREST.assignPod), may still be carried out. So the
// allocation stays Binding while the flight reads the pod live and sends the Binding again. A definite refusal of a
// repeat says nothing of the POSTs before. It counts once these are over: the API server abandons a request after
// --request-timeout (60s by default), and bindSettle is longer than that.
//
// Bindings of others, and pods created with a node, are asked about by the API server (admit.go). Allowing is not
// binding, so what was allowed is pending (pending.go) until it shows up. Before its capacity is given back the pod is
// patched: a Binding is allowed with the pod's resourceVersion as a precondition (BindingREST.setPodNodeAndMetadata),
// so after the patch none that was allowed before can be carried out. A creation cannot be stopped: its capacity stays
// taken for createGrace (admit_create.go).
//
// Resizes (resize.go) are pending like Bindings. Kubernetes counts a pod for the largest of what its spec asks for, its
// kubelet has allocated and is in force. The write fails, or is asked about again, where the pod has changed
// (kubernetes staging/src/k8s.io/apiserver/pkg/registry/generic/registry, Store.Update). So any newer version tells
// what became of it.
//
// All this is in memory. After a restart the watch tells the truth, and the fence refuses Bindings of an earlier term.
// A creation or a resize that was held up is an observation then, and may overcommit its node.
//
// What may be touched: a new rule about who may have what goes into Gates.Refuse of pkg/gates. Gangs that ask for
// capacity (/reserve) are decided on by the folder gang, which uses this package; what a gang needs whose first pod is
// bound is kept in the files gang_*. The API server's answers are sorted in pkg/fates. What becomes of a pod that was
// refused is pkg/waiting's. The package knows nothing of HTTP handlers.
package arbiter
