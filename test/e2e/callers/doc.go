// Package callers has the tests of who may do what, on a real control plane: who asks, by which certificate or token,
// and what the answer is; and what the author of pods may read.
//
// Two servers are there, of which one decides: what holds for it holds through the other one.
package callers
