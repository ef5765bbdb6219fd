// Package reserve keeps capacity for whole gangs that ask for it (/reserve), and gives it back (/unreserve). A gang may
// be a single pod. It stands above pkg/decide, which finds the pods, and knows which caller may act for which scheduler
// and which binds are under way. Pods that start together because they say so themselves are another matter: pkg/gangs
// knows them, and pkg/decide binds them whole.
//
//	arbiter.go          what it is made of, its start and its end
//	reserve.go          the pods of a gang, what they ask for, and a decision in memory
//	durable.go          the same as a Reservation object: capacity in the ledger, then the object, then the answer
//	durable_attempt.go  what the ledger says to each pod
//	durable_write.go    the write, until its fate is known
//	unreserve.go        the way back
//	whatif.go           the same question, where nothing is kept
//	callers.go          who may reserve, and give back
//	report.go           what is logged, counted and remembered of a decision
//
// The package knows nothing of HTTP. What is promised as durable is written down before it is answered, in one write. A
// change must keep this: whenever the server stops, a gang is there whole, or nothing of it is.
package reserve
