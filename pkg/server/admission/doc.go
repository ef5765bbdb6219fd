// Package admission decides bindings at the API server, for every scheduler that does not ask GlobalReserve itself: a
// mutating webhook on the creation of pods/binding and bindings, and of pods that come with spec.nodeName set, and a
// validating one on these pods. It decodes the review, asks pkg/arbiter, and encodes the answer. It decides on resizes
// of pods (an update of pods/resize) too.
//
// A Binding is allowed with the pod's UID and resourceVersion as preconditions: see
// pkg/arbiter for why. The price: it fails with a conflict where something else
// changed the pod between our look at it and the write, the watch's delay included.
// Its scheduler then tries again, as for every conflict. The server's own Bindings
// are allowed as they are; the webhook configuration should not send them here at all.
//
// A Binding to a node without capacity for the pod goes to the node where capacity is kept for this pod alone, if the
// server can judge that node: the patch changes its target (see redirect.go in pkg/arbiter).
//
// A pod that is created with a node comes twice. The mutating webhook writes into the pod what it would be given, as
// nothing can be written into it later. It grants nothing: the API server has not filled in and checked the pod yet,
// and the pod has no UID. The validating webhook (PodsPath) is asked about the very pod that will be written, with its
// UID (apiserver pkg/registry/generic/registry, Store.create), and grants just what the pod tells. Mirror pods, which
// the kubelet makes for what it runs already, are let through.
//
// The annotations that tell what a pod was given, and by whom, are taken out of Bindings and of pods that come with a
// node, and written anew where something is granted.
//
// A resize that makes a pod ask for more than it counts for is allowed where there is capacity for that; any other is
// always allowed. Nothing of it is patched: the API server writes it on top of the version of the pod that it shows
// here. The resources of the new object count, and all else of the old object: the sender may write anything into the
// rest of the new one, and the API server drops it.
//
// A validating webhook at a path of its own (claim.go) decides on the devices that a write gives a ResourceClaim. The
// allocation of the new object counts. The old object tells which claim it is, and on which version the write is made.
//
// # Answers
//
// A refusal is an AdmissionReview with a status the caller gets: 409 where there
// is no capacity or the pod has changed, 404, 422, 429. What keeps the server from
// deciding at all (not ready, API server away) is an HTTP error, for which the API
// server does as the webhook's failurePolicy says. Mistakes in the object under
// review are refusals and never errors, so that nobody gets past a policy Ignore
// by making them.
//
// With Warn a refusal is a warning: the write goes on, and its sender reads what was short. This is for schedulers
// that are not behind the server yet, while it decides for all others. What cannot be decided stays an HTTP error.
//
// What may be touched: this package says what comes over the wire and goes back.
// pkg/arbiter decides what is granted, and until when.
package admission
