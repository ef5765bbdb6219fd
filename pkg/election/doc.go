// Package election sees to it that one server of a cluster decides at any time.
//
// All servers take part: standalone ones, those embedded in a scheduler, and
// schedulers with the ledger in their own process. Three things keep two of them
// apart:
//
//	the Lease   One server holds it (client-go's leaderelection). Its holder decides
//	            only as long as its own clock, which no step of the wall clock
//	            moves, says that nobody else can have it yet (lease.go).
//	the term    Each leadership raises a number in the LedgerTerm object (term.go).
//	            Every Binding and object that a server writes carries its term.
//	the fence   A ValidatingAdmissionPolicy has the API server refuse what carries
//	            an earlier term (fence.go): what a leader sent and was then paused,
//	            or what the network kept back, comes too late.
//
// # A leadership
//
//	follow -> hold the Lease -> raise the term -> see the fence refuse the old term
//	       -> take over -> decide -> lose the Lease -> end
//	                         ^            |
//	                         +- resume <--+ if nobody else has had it
//
// The fence looks at what arrives. A write that is past it and not carried out yet is
// bounded in time (writes.go). Such a write is over before another server may have the
// Lease. A server that takes over from a leader that is gone waits for as long as one
// may last.
//
// Taking over is the server's part: it brings its account up to what the API server
// knows, once no other server can write. Where the fence is not installed a new leader
// waits instead, for as long as a write of the leader before may take.
//
// Where etcd is restored from a backup, the version of the Lease goes back (restored.go). Then no server decides: all
// end, and start anew. Terms are seconds of the clock, so that the next is later than those that the backup has not.
//
// What may be touched: nothing here knows of pods or capacity. Code that writes
// keeps Elector.Term, and gets the term from it at each write. Code that decides
// asks Elector.Leads.
package election
