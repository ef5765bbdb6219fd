// Package dra tests on the real control plane that devices of ResourceSlices are given once, by schedulers that have
// never heard of GlobalReserve: stock kube-schedulers, and a test that writes allocations itself. Pods that ask for
// devices by count are scheduled by the extender and the plugin, too.
//
// The verdict comes from the API server: verdict.go looks after every single event of a ResourceClaim who has which
// device. There are no drivers: the test makes the ResourceSlices, and takes claims away as the controllers of
// Kubernetes do.
//
// It builds nothing: `make build scheduler` has to have made bin/globalreserve and bin/globalreserve-scheduler.
package dra
