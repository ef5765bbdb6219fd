// Package remote is the plugin's backend with the ledger in a server elsewhere.
//
// Filter reads a mirror of the ledger (pkg/mirror) and costs no request. The server's /bind
// decides and binds: for most pods it is the only request, and Reserve counts them in the mirror
// alone until then. A pod that may wait between Reserve and Bind, or for which more is done there, is
// reserved at the server first; so is one whose last bind was refused. What that
// reserves does not survive the server, so /bind reserves again if it must. Which
// reservations a pod may use, and what its claims of devices ask for, is read from the
// objects themselves. Which resources DeviceClasses leave to DRA is heard from kube-scheduler's own watch (classes.go).
//
// Pods that the mirror left no node are told the server by their names, a little later (refused.go): it remembers who was
// refused, and why.
//
// # When the server is away
//
// Decisions stop when the mirror says that its connection is lost or that it is
// behind, or when a request finds nobody (health.go). A bind may wait for the API server, so a server that owes
// the answer is asked for a sign of life; after a failure that comes before any pod is assumed. What becomes of pods then is
// the plugin's policy; the plugin looks again and again whether the server is back, and
// says so in the log once for each change.
package remote
