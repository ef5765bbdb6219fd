/*
Package v1alpha1 holds the types of the API group globalreserve.io: the Reservation, which keeps capacity
on nodes for pods that are not there yet; the ExtendedResource, which is one device of a node; and the
ExtendedResourceClaim, by which a pod asks for devices, with the ExtendedResourceClaimTemplate, which gives each pod
a claim of its own.

What lives where:

  - reservation.go  the Reservation and its spec: what a user writes
  - status.go       its status: what the server writes, and the names of phases and conditions
  - device.go       the ExtendedResource
  - deviceclaim.go  the ExtendedResourceClaim, and the selector of devices
  - deviceclaimtemplate.go  the ExtendedResourceClaimTemplate
  - annotations.go  the annotations on pods, Deployments and bindings
  - register.go     how the types get into a runtime.Scheme

The validation markers become the CustomResourceDefinitions in manifests/crd, and zz_generated files
come from the same sources: run `make generate` after every change here. pkg/generated holds the
typed client.

A field is optional where its tag says omitempty, and required otherwise: markers say so only where that differs.

Two rules for whoever changes a field. Every value the schema admits must decode into its Go type,
because one object that does not decode stops every informer of the kind; durations and quantities
are therefore limited to what Go can parse. And every list, map and string that a CEL rule walks has
an upper limit, or the API server refuses the definition as too costly; the keys of a map cannot have
one, so that rules ask for no more than their size.

The package imports the API machinery and k8s.io/api, never client-go, so that anybody can use the
types.
*/
// +kubebuilder:object:generate=true
// +groupName=globalreserve.io
package v1alpha1
