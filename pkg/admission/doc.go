// Package admission decides bindings at the API server, for every scheduler that
// does not ask GlobalReserve itself: a mutating webhook on the creation of
// pods/binding and bindings, and of pods that come with spec.nodeName set.
//
// # One binding
//
//	find the pod      informer, else a live GET
//	ledger.StartBind  refused: 409, with what is missing and who holds it
//	remember it       as pending, until it is known what became of it
//	allow             with the pod's UID and resourceVersion as preconditions
//
// and then, in the background,
//
//	observed          the pod shows up bound: the ledger has it from the informers
//	after Grace       still unbound: withdraw the binding, give the room back
//
// # An allowed binding that does not happen
//
// Allowing is not binding: another webhook may refuse, the caller may be gone, or
// the binding may wait in the API server for long and be carried out later. Giving
// its room back while it may still be carried out could promise the room twice. So
// every binding is allowed with the pod's present resourceVersion as a
// precondition, which the API server checks when it writes (kubernetes
// pkg/registry/core/pod/storage, BindingREST.setPodNodeAndMetadata). Before the
// room is given back, the pod is patched, which changes its resourceVersion: if
// the pod that the patch returns is unbound, no binding allowed before can be
// carried out any more. As long as the patch's outcome is not known, the claim
// stays and the patch is repeated.
//
// The price: a binding fails with a conflict where something else changed the pod
// between our look at it and the write, the informer's delay included. Its
// scheduler then tries again, as for every conflict, and a binding for another
// node is not held up by the first (see Admission.settleEarly).
//
// A binding that another request for the same pod and node follows is one claim;
// the later allowance begins a new Grace. Requests that arrive while a claim is
// being bound by the server's own Bind (pkg/arbiter) are refused, because that
// takes the claim back by its own rules. The server's own bindings are allowed as
// they are; the webhook configuration should not send them here at all.
//
// # Pods created with a node
//
// Such a pod has no UID yet, so its claim is made by name and the informers give
// it the UID. A pod that has its name from generateName gets it here, because the
// claim needs one. Nothing can stop a creation that is under way, so a claim whose
// pod does not show up stays until the API server must have abandoned the request
// (CreateGrace). Mirror pods, which the kubelet makes for what it runs already,
// are let through.
//
// # What is remembered
//
// Pending bindings are in memory only, at most MaxPending. Stop settles them all,
// so that nothing is under way when the next server reads the cluster. After a
// crash nobody knows of them. The next server makes no decision in its first
// seconds (pkg/app), by when nearly all of them have been carried out; one that a
// slow webhook holds up for longer is an observation like any other, and may
// overcommit its node.
//
// # Answers
//
// A refusal is an AdmissionReview with a status the caller gets: 409 where there
// is no room or the pod has changed, 404, 422, 429. What keeps the server from
// deciding at all (not ready, API server away) is an HTTP error, for which the API
// server does as the webhook's failurePolicy says. Mistakes in the object under
// review are refusals and never errors, so that nobody gets past a policy Ignore
// by making them.
//
// What may be touched: how long to wait and what to patch is decided here; what
// fits is decided in pkg/ledger.
package admission
