// Package admission decides bindings at the API server, for every scheduler that does not ask GlobalReserve itself.
// It decodes the review, asks pkg/decide, and encodes the answer. A mutating webhook decides on the creation of
// pods/binding and bindings and on resizes of pods, and plans pods that come with spec.nodeName set. A validating one
// (PodsPath) decides on these pods, and another (claim.go) on the devices that a write gives a ResourceClaim.
//
//   - A Binding is allowed with the pod's UID and resourceVersion as preconditions: see pkg/decide for why. It fails
//     with a conflict where something else changed the pod since we looked at it.
//   - A pod that is created with a node comes twice. The mutating webhook writes into the pod what it would be given,
//     as nothing can be written into it later, and grants nothing: the pod has no UID yet. The validating webhook
//     sees the very pod that will be written (apiserver pkg/registry/generic/registry, Store.create), and
//     grants just what the pod says.
//   - The annotations that say what a pod was given, and by whom, are taken out of Bindings and of pods that come
//     with a node, and written anew where something is granted.
//   - Of a resize the resources of the new object count, and all else of the old one: the API server drops the rest
//     of the new one. Of a ResourceClaim the old object says which claim it is, and on which version the write is
//     made.
//
// A refusal is an AdmissionReview with a status the caller gets: 403, 404, 409, 422, 429. What keeps the server from
// deciding at all is an HTTP error, for which the API server does as the webhook's failurePolicy says. Mistakes in
// the object under review are refusals and never errors, so that nobody gets past a policy Ignore by making them.
//
// What may be touched: this package says what comes over the wire and goes back. pkg/decide decides what is granted,
// and until when.
package admission
