/*
Package drain holds the tests of draining nodes: kubectl reserve drain as a process, with kube-controller-manager making
pods again that were evicted, and kwok for the kubelets. There is nothing here to import.

  - bench_test.go  a cluster with workloads, and the command
  - race_test.go   others take what is free while nodes are drained; large_test.go: a plan for many nodes
  - killed_test.go the command is killed at each step, and so is the server that decides
  - controller_test.go  examples/drain, which drains nodes with a taint
  - evictions_test.go  examples/evictions, which responds to Evictions
  - walk_test.go   the way of somebody who drains a node, and what stands in the way
*/
package drain
