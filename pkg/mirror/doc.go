// Package mirror keeps a replica of a server's ledger from the server's watch, so
// that a scheduler elsewhere can ask whether a pod fits without a request.
//
// A replica says what the ledger was a moment ago. It is for looking around: what it
// offers has to be reserved at the server, which may refuse it.
//
// Assume adds a pod to it that is about to be bound at the server, until the watch tells of that, or for as long as a bind may take.
//
// # What it knows of its own age
//
//	synced   a whole snapshot has been taken in; goes with a lost connection
//	Revision what of the server's ledger the replica has
//	Seen     tells it of a revision that some answer of the server had; as long as
//	         the watch has not brought that one, the replica is behind
//
// Health says all of that in one error. A connection that breaks does not make the
// replica useless at once: most come back within moments.
//
// What may be touched: apply.go turns events into the operations of
// pkg/ledger/replica.go and knows nothing of connections; mirror.go knows nothing of
// what is in an event but its revision. Time is the time package's, so tests run in a
// testing/synctest bubble.
package mirror
