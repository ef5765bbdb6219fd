/*
Package deletedpods holds the end-to-end tests of how pods come to use reserved capacity, on a real control plane with a
real kube-scheduler behind bin/globalreserve, which has exactly the rights of manifests/base. Where there are workloads,
it has kube-controller-manager, too, and kwok in the place of the kubelets. There is nothing here to import.

	make build controlplane
	go test ./test/e2e/deletedpods -v

What lives where:

  - cluster_test.go     the cluster, and what every test asks of it
  - workload_test.go    pods, Deployments and StatefulSets
  - godel_test.go       the workflow of the Gödel scheduler, step by step
  - controllers_test.go controllers whose pods come back: rolling updates, recurring names, and those that do not
  - examples_test.go    the walk-throughs of examples/reservations
  - provisioning_test.go nodes that are requested for Reservations that fit none
  - match_test.go       a pod that waits, and 500 nodes of which a scheduler sees a sample

A cluster costs a few seconds, so tests that do not disturb each other share one as subtests, each in
a namespace of its own and with nodes of its own.
*/
package deletedpods
