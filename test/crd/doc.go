/*
Package crd installs the CustomResourceDefinition of manifests/crd on a test control plane, for every
test that needs Reservations, and its own tests show on a real API server what the definition admits,
refuses and prints.

	cp := controlplane.StartT(t, controlplane.Options{})
	config, err := cp.AdminRESTConfig()
	err = crd.Install(ctx, config)

The tables in the tests are where a new rule of the API is first written down: one line with a bad
object and the message its author must see. Nothing of the server or its controller belongs here.
*/
package crd
