/*
Package deletedpods holds the end-to-end tests of how pods come to use reserved capacity, on a real control
plane with kube-controller-manager, kwok in the place of the kubelets, and a real kube-scheduler behind
bin/globalreserve, which has exactly the rights of manifests/base. There is nothing here to import.

	make build controlplane
	go test ./test/e2e/deletedpods -v

What lives where:

  - cluster_test.go     the cluster, and what every test asks of it
  - workload_test.go    pods, Deployments, StatefulSets, Jobs and Reservations
  - godel_test.go       the workflow of the Gödel scheduler, step by step
  - controllers_test.go controllers whose pods come back: scaling, rolling updates, recurring names
  - ttl_test.go         how long capacity is kept, and who gets it then
  - examples_test.go    the walk-throughs of examples/reservations
  - provisioning_test.go nodes that are requested for Reservations that fit none
  - match_test.go       namespaces, preemptible capacity, and 500 nodes of which a scheduler sees a sample

A cluster costs a few seconds, so tests that do not disturb each other share one as subtests, each in
a namespace of its own and with nodes of its own.
*/
package deletedpods
