/*
Package devices holds the end-to-end tests of devices and the claims of pods for them, on a real control
plane with bin/globalreserve, which has exactly the rights of manifests/base, and with real kube-schedulers
behind it. There is nothing here to import.

	make build controlplane
	go test ./test/e2e/devices -v

What lives where:

  - cluster_test.go  the cluster, and what every test asks of it
  - waysin_test.go   the extender, /reserve and admission, one by one
  - life_test.go     what becomes of claims and devices when pods and devices go
  - walk_test.go     both setups of examples/extended-resources, and a server that is killed there
  - readme_test.go   the commands of its README, as they are written there

How claims are resolved, and what becomes of lost binds and of servers that start, is in pkg/extendeddevices and
pkg/decide. That all of it at once gives no device twice is in test/sim.
*/
package devices
