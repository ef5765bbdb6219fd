/*
Package kubectl holds the end-to-end tests of the kubectl plugin: bin/kubectl-reserve as a process of
its own, against a real API server with bin/globalreserve beside it. There is nothing here to import.

	make e2e
	go test ./test/e2e/kubectl -v

The second form needs `make build controlplane` before it.

The plugin reaches the server by --ledger-url. Forwarding a port needs a kubelet, which this control plane
does not have: the unit tests of pkg/kubectl forward one through a server that speaks the protocol.
*/
package kubectl
