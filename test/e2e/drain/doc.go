/*
Package drain holds the tests of draining nodes: kubectl reserve drain as a process, with kube-controller-manager making
pods again that were evicted, and kwok for the kubelets. There is nothing here to import.

  - bench_test.go  a cluster with workloads, and the command
  - walk_test.go   the way of somebody who drains a node, and what stands in the way
*/
package drain
