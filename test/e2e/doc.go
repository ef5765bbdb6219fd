/*
Package e2e holds the end-to-end tests: a real etcd and kube-apiserver, real kube-schedulers with the
files of scheduler-config/, the example gang scheduler, and bin/globalreserve as a process of its own
with exactly the rights of manifests/base. There is nothing here to import.

	make e2e
	go test ./test/e2e -run TestRace -v

The second form needs `make build controlplane` before it.

What lives where:

  - cluster_test.go    a control plane with a server; what is common to all folders is in testbed
  - agreement_test.go  compares what the server says with what the API server has
  - race_test.go       schedulers compete for less capacity than they ask for
  - group_test.go      gangs are reserved whole or not at all; what becomes of reserved pods
  - badinput_test.go   malformed and hostile requests over all routes; its table is in badcases_test.go
  - fault_test.go      API server, etcd and server restarted under load; bindfault_test.go: lost answers
  - expiry_test.go     reservations that end wake the pods that wait for their capacity
  - skew_test.go       kube-schedulers of older releases: docs/skew.md
  - scheduler_test.go, preempt_test.go, extender_test.go  kube-scheduler's side
  - drift_test.go      the server's comparison of its ledger with the cluster
  - bypass_test.go, policy_test.go, lifecycle_test.go, whatif_test.go  the rest, by what it is about

Verdicts come from the API server: from every single watch event (clusterload.Watcher), and from lists
at the end. What the server says of itself is compared with those, never trusted. The tests
share one control plane, which has none of the objects of the test before, and each has a server of its
own. Those that stop parts of the control plane have their own.
*/
package e2e
