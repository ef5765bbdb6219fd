// Package local is the plugin's backend with the ledger in the scheduler's own
// process: the whole server of pkg/app runs there, so that everybody else reserves
// from the same ledger over HTTP, while this scheduler asks it by function calls.
//
// # Who decides
//
// There must be one ledger in a cluster. A scheduler is often run in several
// replicas, of which kube-scheduler's leader election lets one schedule; but the
// others' plugins are made as well. So the server starts once this process holds the
// Lease "globalreserve", decides only while it is sure to hold it, and a process that
// loses the Lease ends itself at once, with all it has under way: another one may be
// deciding. The holder is named after the host, which is the pod's name in a pod, so
// that a scheduler that was restarted in its pod has the Lease at once, and after the
// port, which keeps two on one host apart.
//
// The two leases are not tied to each other: a replica that schedules while another one
// has the ledger schedules nothing. So there should be one process in this mode.
//
// Until the account is complete pods are refused, and woken when it is.
//
// # What may be touched
//
// This is the one package besides the commands that may import pkg/app: it is a
// composition root like them.
package local
