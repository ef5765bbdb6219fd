/*
Package devices holds the end-to-end tests of devices and the claims of pods for them, on a real control
plane with bin/globalreserve, which has exactly the rights of manifests/base, and with real kube-schedulers
behind it. There is nothing here to import.

	make build controlplane
	go test ./test/e2e/devices -v

What lives where:

  - cluster_test.go  the cluster, and what every test asks of it
  - verdict_test.go  the watch that says after every event which pod has which device
  - race_test.go     schedulers that race for devices; that the verdict can be bad
  - waysin_test.go   the extender, /reserve, admission and the plugin, one by one and all at once
  - life_test.go     what becomes of claims and devices when pods, claims, devices and nodes go
  - reservation_test.go  devices that a Reservation keeps
  - bad_test.go      claims and annotations that cannot be used
  - kill_test.go     the server killed at random moments of a load
  - fault_test.go    bindings that are lost, and changes while the server is down
  - walk_test.go     the walk-through of examples/extended-resources
  - readme_test.go   the commands of its README, as they are written there
*/
package devices
