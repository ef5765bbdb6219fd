// Package remote is the plugin's backend with the ledger in a server elsewhere.
//
// Filter reads a mirror of the ledger (pkg/mirror) and costs no request. Reserve is one
// small request, for an allocation in memory: it does not survive the server, so the pod is
// bound through the server's /bind, which reserves again if it must. Which
// reservations a pod may use, and what its claims of devices ask for, is read from the
// objects themselves.
//
// # When the server is away
//
// Decisions stop when the mirror says that its connection is lost or that it is
// behind, or when a request finds nobody (health.go). What becomes of pods then is
// the plugin's policy; the plugin looks again and again whether the server is back, and
// says so in the log once for each change.
package remote
