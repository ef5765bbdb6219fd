// Package kubectl is the kubectl plugin: the commands of `kubectl reserve`, which people use to see what is free, who
// holds it and why a pod waits, and to make Reservation objects.
//
// Reservation objects are written to and read from the Kubernetes API (environment.go), with the rights of the user.
// What only the ledger knows comes from GlobalReserve's routes under /v1 (server.go), at --ledger-url or through a port
// forwarded to a pod of its Service (tunnel.go). What lives where:
//
//   - root.go        the root command, its flags and Execute, which turns errors into exit codes
//   - environment.go what all commands share; tests replace its connections and its clock
//   - errors.go      exit codes, and the texts of Kubernetes' and the network's errors
//   - output.go, plain.go, amounts.go  -o table|wide|yaml|json|name, what is kept from the terminal, cores and Gi
//   - complete.go    shell completion of names
//   - the others are a command each
//
// What may be touched: the plugin prints what the server says, and decides nothing about capacity. The types of answers
// are those of pkg/reserver; a field added there is printed by -o yaml and -o json without a change here.
//
// The tests run the command line that each file in testdata begins with, and compare whole outputs;
// UPDATE_GOLDEN=1 go test ./pkg/kubectl writes them anew. What takes a cluster is in test/e2e/kubectl.
package kubectl
