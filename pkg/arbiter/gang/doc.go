// Package gang keeps capacity for whole gangs that ask for it (/reserve), and gives it back (/unreserve). A gang may
// be a single pod. It stands above pkg/arbiter, which finds the pods, passes the gates and knows the binds under way.
//
//	reserve.go          the pods of a gang, what they ask for, and a decision in memory
//	durable.go          the same as Reservation objects: first capacity in the ledger, then the objects, then the answer
//	durable_parts.go    the objects that one gang is written as, and what a server before this one did not finish
//	durable_attempt.go  what the ledger says to each pod
//	durable_write.go    the writes, until their fate is known
//	durable_undo.go     what is taken back
//	unreserve.go        the way back
//	whatif.go           the same question, where nothing is kept
//
// The package knows nothing of HTTP. What is promised here is written down before it is answered. A change to the
// order of the writes must keep this: whenever the server stops, a gang is there whole and acknowledged, or somebody
// deletes what is there of it.
package gang
