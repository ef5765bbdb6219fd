// Package election sees to it that one server of a cluster decides at any time (docs/leader.md, docs/decisions/0008):
//
//	lease.go   the Lease: its holder decides as long as its own clock says that nobody else can have it yet
//	term.go    the term of each leadership, a number in the LedgerTerm, which each Binding and object we write carries
//	fence.go   the policy by which the API server refuses what carries an earlier term
//	writes.go  bounds the time of a write that is past the fence and not carried out yet: it is over before another
//	           server may have the Lease, and a server that takes over from one that is gone waits for as long
//
// A leadership:
//
//	follow -> hold the Lease -> raise the term -> see the fence refuse the old term
//	       -> take over -> decide -> lose the Lease -> end
//	                         ^            |
//	                         +- resume <--+ if nobody else has had it
//
// Where etcd is restored from a backup, the version of the Lease goes back (restored.go): then all servers end. Terms
// are seconds of the clock, so that the next term is later than those that the backup lacks.
//
// What may be touched: nothing here knows of pods or capacity. Code that writes gets the term from Elector.Term at each
// write. Code that decides asks Elector.Leads.
package election
