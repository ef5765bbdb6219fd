// Package debugger compares the account of a server with what the API server lists now, for /debug/diff.
//
//   - look.go     compares the account with live lists, and looks again: what is being written is no difference
//   - objects.go  the part of that for reservations and devices
//
// A server that does not decide follows pods and nodes alone, so nothing else of it is compared. What is reserved in
// memory only has nothing to be compared with.
//
// What may be touched: how an account differs from pods and nodes is said by pkg/kube/cluster, which repairs such
// differences in a server. Nothing is repaired here.
package debugger
