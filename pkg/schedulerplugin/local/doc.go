// Package local is the plugin's backend with the ledger in the scheduler's own
// process: the whole server of pkg/app runs there, so that everybody else reserves
// from the same ledger over HTTP, while this scheduler asks it by function calls.
//
// # Who decides
//
// There must be one ledger in a cluster, and the scheduler that schedules must be the
// one that has it. So there is one election, that of pkg/election, and none of
// kube-scheduler's: its leaderElection.leaderElect is false, which
// cmd/globalreserve-scheduler insists on. All replicas follow pods and nodes, and keep
// pods out of their queues (PreEnqueue) until they hold the Lease "globalreserve", have
// taken over and decide. Until then they pass on what they are asked over HTTP. A
// standalone server takes part in the same election: while it leads, no such scheduler
// schedules.
//
// A process that loses the Lease decides nothing from that moment on, and ends itself when another one has it.
//
// Until the account is complete pods are refused, and woken when it is.
//
// # What may be touched
//
// This is the one package besides the commands that may import pkg/app: it is a
// composition root like them.
package local
