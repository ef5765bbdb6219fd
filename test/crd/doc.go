/*
Package crd installs the CustomResourceDefinitions of manifests/crd on a test control plane, for every
test that needs Reservations or devices, and its own tests show on a real API server what the
definitions admit, refuse and print.

	cp := controlplane.StartT(t, controlplane.Options{})
	err := crd.Prepare(ctx, cp)

The tables in the tests are where a new rule of the API is first written down: one line with a bad
object and the message its author must see. Nothing of the server or its controller belongs here.
*/
package crd
