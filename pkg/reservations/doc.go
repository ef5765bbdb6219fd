/*
Package reservations makes Reservation objects hold capacity in the ledger, and reports in their status
what became of it. docs/reservations.md describes them for users.

The Controller follows the objects, on pkg/kube/informer. The object is the truth of what is wanted, the ledger of
what is held; status is a projection of the ledger and decides nothing. What lives where:

  - controller.go  the Controller: its parts, its start, what the watch reports
  - adopt.go, restore.go  objects met for the first time, and those of the start that were granted capacity
  - record.go      what is known of one object, and every step of its life; pure, no clock
  - pending.go, provisioning.go  reports on objects that wait, and their condition about requested nodes
  - status.go, events.go  the words of the status, which is pure, and Events on the objects
  - ledger.go      the ledger's events: pods took a slot, it expired, a node went
  - place.go, choose.go  the loop that places pending objects, and which nodes the server chooses, which is pure
  - write.go       what the workers write: status, and the deletion of objects
  - release.go, expire.go  giving back single slots, and ending what is due while nobody asks

Below it are convert (objects to slots and back), deletedpods (the capacity of deleted pods) and store (writes whose
outcome must be known). The life of a Reservation:

		(created) --> Pending --all slots placed in one step--> Available --every slot used--> Succeeded
		                 |                                          |--ttl over--------------> Expired
		                 |                                          |--pod of higher priority> Preempted
		                 |                                          |--a node of it is gone--> Failed
		                 +--can never be placed-----------------------------------------------> Failed

	  - An object the server made itself (convert.MadeByLabel) has its capacity in the ledger before it exists: it is
	    Available from its creation on. The label alone gives nothing. It is deleted when it has ended, because the
	    bindings of its pods are the record of it. Any other object is deleted FinishedTTL after its end.
	  - expiresAt is status.availableAt + ttl, rounded up, and the ledger's deadline is the same moment.
	  - A reservation ends as a whole, when none of its slots is left. A slot with a bind in flight outlives its deadline.
	  - Final phases are final. One that somebody wrote by hand is respected: the capacity is released.

The objects are listed first (Listed), then pods and nodes. Before anything else is decided, objects get back the
capacity that they say they had (restoreAll), the oldest first, each as a whole, and only where the capacity is free.
Nobody can write an object's creation time. Others can write its status: the nodes and devices there are a preference.
An object whose capacity is not free waits like a new one, unless some of its pods run already: then it fails.

Controller.mu guards the records. The ledger may be called with it held, the API server never is. Code that relies on a
slot's absence reads the ledger's events first (journal.CatchUp), so that it is known how the slot ended.

What may be touched: pkg/ledger decides what a pod or a slot may do. This package decides which objects lead to
which slots, and what their status says.
*/
package reservations
