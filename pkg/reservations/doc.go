/*
Package reservations makes Reservation objects hold capacity in the ledger, and makes the objects tell
what became of it.

The Controller follows the objects, on pkg/follow. The object is the truth of what is wanted, the ledger of
what is held; status is a projection of the ledger and decides nothing. What lives where:

  - controller.go  the Controller: its parts, its start, what the watch tells
  - adopt.go       objects met for the first time
  - restore.go     objects of the start that say that capacity was granted to them
  - record.go      what is known of one object, and every step of its life; pure, no clock
  - pending.go     what others are told of objects that wait for capacity
  - status.go      how status puts that in words: conditions, printer columns; pure
  - ledger.go      the ledger's events: pods took a slot, it expired, a node went
  - place.go       the loop that places pending objects
  - choose.go      which nodes the server chooses; pure
  - write.go       what the workers write: status, and the deletion of objects
  - release.go     giving back single slots
  - expire.go      the loop that ends in the ledger what is due, while nobody asks
  - provisioning.go  what objects say of the nodes that were requested for them
  - events.go      Events on the objects

The packages below it: convert (objects to slots and back), deletedpods (the capacity of deleted pods) and store
(writes whose outcome must be known). pkg/arbiter says which pods may use which slot.

# The life of a Reservation

		(created) --> Pending --all slots placed in one step--> Available --every slot used--> Succeeded
		                 |                                          |--ttl over--------------> Expired
		                 |                                          |--pod of higher priority> Preempted
		                 |                                          |--a node of it is gone--> Failed
		                 +--can never be placed-----------------------------------------------> Failed

	  - Pending objects are tried in the order of priority, then age, whenever the ledger frees capacity or
	    a node changes. The Available condition has the reason. One that does not fit does not keep
	    younger ones from being placed.
	  - An object the server made itself (convert.MadeByLabel) has its capacity in the ledger before it exists: it is
	    Available from its creation on. The label alone gives nothing. It is deleted when it has ended, because the
	    bindings of its pods are the record of it. Any other object is deleted FinishedTTL after its end.
	  - The ttl counts from status.availableAt, which has whole seconds: expiresAt is availableAt + ttl,
	    rounded up, and the ledger's deadline is the same moment. A longer ttl moves both, nothing
	    else does. A ttl above the policy's maximum fails a new object and leaves the deadline of one
	    that is Available as it is. 0s means until deleted, whatever the maximum.
	  - A reservation ends as a whole, when none of its slots is left. A slot with a bind in flight
	    outlives its deadline until the bind has ended, and so does the reservation.
	  - Nodes are told apart by UID: one that was deleted and made again under its name has lost the
	    capacity. A cordoned node keeps it.
	  - Final phases are final. One that somebody wrote by hand is respected: the capacity is released.

# Starting

The objects are listed first (WaitListed), then pods and nodes. Once these are in the ledger, and before anything else
is decided, objects get back the capacity that they say they had (restoreAll). These are the objects that say that they
are Available, and those that the server made. The oldest come first, each as a whole, and only where the capacity is
free. The nodes and devices in the status are a preference, no more: anybody may have written the status, and the label.
Only the time of an object's creation cannot be written. So:

  - Pods that were bound with a slot are linked with it, and use it up. What they use does not count twice.
  - Slots that are used up or given back by status, or whose pods are gone, keep nothing, and neither do
    objects past their deadline. Objects whose node is gone, or is another one of the same name, fail.
  - An object whose capacity is not free waits like a new one, unless some of its pods run already: then it fails.

The capacity of a durable reservation that was acknowledged is free at a restart, unless pods were bound around
the server: nothing else is decided before. Only then is the Controller Synced and the server decides.

# When the definition goes

The objects go with it, and what they hold is given back. The server works without until it is back.

# Locks

Controller.mu guards the records. The ledger may be called with it held, the API server never is.
Code that relies on a slot's absence reads the ledger's events first (journal.CatchUp), so that it is known
how the slot ended.

What may be touched: pkg/ledger decides what a pod or a slot may do. This package decides which objects lead to
which slots, and what their status says.
*/
package reservations
