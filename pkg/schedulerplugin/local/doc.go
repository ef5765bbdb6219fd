// Package local is the plugin's backend with the ledger in the scheduler's own
// process: the whole server of pkg/app runs there, so that everybody else reserves
// from the same ledger over HTTP, while this scheduler asks it by function calls.
//
// # Who decides
//
// There must be one ledger in a cluster. A scheduler is often run in several
// replicas, of which kube-scheduler's leader election lets one schedule; but the
// others' plugins are made as well. So the server starts once this process holds the
// Lease "globalreserve", and a process that loses the Lease ends itself: another one
// may be deciding. The holder is named after the host, which is the pod's name in a
// pod, so that a scheduler that was restarted in its pod has the Lease at once; two on
// one host are kept apart by the port.
//
// Until the account is complete pods are refused, and woken when it is.
//
// # What may be touched
//
// This is the one package besides the commands that may import pkg/app: it is a
// composition root like them.
package local
