/*
Package durable holds the end-to-end tests of gangs that are reserved through /reserve and written
down as Reservation objects: a real etcd and kube-apiserver, and bin/globalreserve as a process of its
own with exactly the rights of manifests/base. There is nothing here to import.

	go test ./test/e2e/durable -v                            # after make build controlplane
	go test ./test/e2e/durable -run '^$' -bench . -benchtime 1x

What lives where:

  - cluster_test.go  a control plane with the definition of Reservation and a server, and calls of both
  - survive_test.go  the server is killed and started again; the scheduler binds by itself
  - speed_test.go    benchmarks: /reserve beside a bare create, and 10,000 slots that expire at once

Writes that fail are in pkg/http/rest and pkg/decide/reserve.

Verdicts come from the API server's objects and watch events; what the server says is compared with
them.
*/
package durable
