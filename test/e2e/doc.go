/*
Package e2e holds the end-to-end tests: a real etcd and kube-apiserver, real kube-schedulers with the
files of scheduler-config/, the example gang scheduler, and bin/globalreserve as a process of its own
with exactly the rights of manifests/base. There is nothing here to import.

	make system
	make e2e
	go test ./test/e2e -run TestRace -v

The last form needs `make build controlplane` before it. Files without a build tag are in the gate (make system); those
tagged e2e, chaos and soak are run by the targets of these names.

What lives where:

  - cluster_test.go    a control plane with a server; what is common to all folders is in testbed
  - agreement_test.go  compares what the server says with what the API server has
  - badinput_test.go   malformed, hostile and slow requests to the whole server
  - expiry_test.go     reservations that end wake the pods that wait for their capacity
  - skew_test.go       kube-schedulers of older releases: docs/skew.md
  - scheduler_test.go  each file of scheduler-config/, and schedulers that compete for less capacity than they ask for
  - preemption_test.go the rest of kube-scheduler's side
  - observe_test.go    a server that only observes
  - trace_test.go      spans of pods, as a collector gets them
  - lifecycle_test.go  a server that is stopped or misled, and binds that pass it by

Verdicts come from the API server: from every single watch event (clusterload.Watcher), and from lists
at the end. What the server says of itself is compared with those, never trusted. The tests
share one control plane, which has none of the objects of the test before, and each has a server of its
own. Those that stop parts of the control plane have their own.
*/
package e2e
