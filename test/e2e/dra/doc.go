// Package dra tests on the real control plane that devices of ResourceSlices are given once, by schedulers that have
// never heard of GlobalReserve: stock kube-schedulers, and a test that writes allocations itself. Pods that ask for
// devices by count are scheduled by the extender, too.
//
// The verdict comes from the API server: verdict_test.go looks after every single event of a ResourceClaim who has
// which device. There are no drivers: the test makes the ResourceSlices, and takes claims away as the controllers of
// Kubernetes do.
//
// It builds nothing: run `make build controlplane` before.
package dra
