// Package kubectl is the kubectl plugin: the commands of `kubectl reserve`, which people use to see
// what is free, who holds it and why a pod waits, and to make Reservation objects.
//
// It speaks to two servers. Reservation objects are written to and read from the Kubernetes API
// (environment.go), so that the plugin has the rights of its user and no others. What only the ledger
// knows, the account of the nodes and the reasons of a refusal, comes from GlobalReserve's own
// read-only routes under /v1 (server.go), either at --ledger-url or through a port forwarded to a pod of
// its Service, as kubectl port-forward does (tunnel.go).
//
// What lives where:
//
//   - root.go        the root command, its flags and Execute, which turns errors into exit codes
//   - environment.go what all commands share; tests replace its connections and its clock
//   - errors.go      exit codes, and what Kubernetes' and the network's errors are told as
//   - output.go      -o table|wide|yaml|json|name
//   - plain.go       what is kept from the terminal
//   - amounts.go     amounts for people: cores, Gi
//   - create.go      Reservation objects
//   - nodes.go, explain.go, pods.go, version.go        the server's routes
//   - ui.go         the live page on this machine, which asks the server through the plugin
//   - complete.go    shell completion of names
//
// Nothing here decides anything about capacity: the plugin prints what the server says. The types of
// the server's answers are those of pkg/reserver; a field added there is printed by -o yaml and
// -o json without a change here.
//
// The tests run the command line that each file in testdata begins with, and compare whole outputs;
// UPDATE_GOLDEN=1 go test ./pkg/kubectl writes them anew. What takes a cluster is in test/e2e/kubectl.
package kubectl
