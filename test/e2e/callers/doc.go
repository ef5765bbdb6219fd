// Package callers has the tests of who may do what, on a real control plane: who asks, by which certificate or token,
// on which listener, and what the answer is; whose a reservation is; and a kube-scheduler that says who it is.
//
// Two servers are there, of which one decides: what holds for it holds through the other one.
package callers
