/*
Package reservations holds the end-to-end tests of the life of Reservation objects: a real API server
and etcd, and bin/globalreserve with exactly the rights of manifests/base. No scheduler runs here; the
tests ask the server what schedulers would ask. There is nothing here to import.

	make build controlplane
	go test ./test/e2e/reservations -v

What lives where:

  - cluster_test.go  the cluster, and what every test asks of it
  - life_test.go     phases and conditions, gangs, shared slots, nodes that go, Events
  - autoscaler_test.go  nodes that are annotated against being removed

Restarts, ends, and objects that make no sense are in pkg/reservations, what the definition refuses in test/crd.
How pods come to use the capacity is in test/e2e/deletedpods.
*/
package reservations
