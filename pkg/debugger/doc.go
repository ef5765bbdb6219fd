// Package debugger shows the account of a server, and compares it with what the API server lists now: by the
// commands `globalreserve debug dump` and `globalreserve debug diff`, and in the log of a server that gets SIGUSR2.
//
//   - server.go   the part in a server, and what it logs at the signal
//   - look.go     compares the account with live lists, and looks again: what is being written is no difference
//   - objects.go  the part of that for reservations and devices
//   - dump.go     an account in lines of text
//   - command.go  the commands, which ask a server
//
// A server that does not decide follows pods and nodes alone, so nothing else of it is compared. What is reserved in
// memory only has nothing to be compared with.
//
// What may be touched: how an account differs from pods and nodes is said by pkg/cluster, which repairs such
// differences in a server. Nothing is repaired here.
package debugger
