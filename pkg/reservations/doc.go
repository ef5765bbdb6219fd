/*
Package reservations makes Reservation objects hold room in the ledger, and makes the objects tell
what became of it.

The Controller watches the objects. The object is the truth of what is wanted, the ledger of what is
held; status is a projection of the ledger. What lives where:

  - controller.go  the Controller: start, stop, what the watch tells
  - adopt.go       objects met for the first time: those found at the start, and new ones
  - record.go      what is known of one object, and every step of its life; pure, no clock
  - status.go      how status puts that in words: conditions, printer columns; pure
  - ledger.go      the ledger's events: pods took a hold, it expired, a node went
  - place.go       the loop that places pending objects
  - choose.go      which nodes the server chooses; pure
  - write.go       the workers that write status and delete objects
  - release.go     giving back single slots
  - events.go      Events on the objects

The packages below it: convert (objects to holds and back), matcher (which pods may use which hold),
deletedpods (the room of deleted pods), steering (pods to the nodes that hold room for them), store
(writes whose outcome must be known) and blame (Events on the pods that wait for room held for others).

# The life of a Reservation

		(created) --> Pending --all slots placed in one step--> Available --every slot used--> Succeeded
		                 |                                          |--ttl over--------------> Expired
		                 |                                          |--pod of higher priority> Preempted
		                 |                                          |--a node of it is gone--> Failed
		                 +--can never be placed-----------------------------------------------> Failed

	  - Pending objects are tried in the order of priority, then age, whenever the ledger frees room or
	    a node changes. The Available condition has the reason. One that does not fit does not keep
	    younger ones from being placed.
	  - An object the server made itself (convert.MadeByLabel) had its room before it existed: it is
	    Available from its creation on. It is deleted when it has ended, because the bindings of its
	    pods are the record of it. Any other object is deleted FinishedTTL after its end.
	  - The ttl counts from status.availableAt, which has whole seconds: expiresAt is availableAt + ttl,
	    rounded up, and the ledger's deadline is the same moment. A longer ttl moves both, nothing
	    else does. A ttl above the policy's maximum fails a new object and leaves the deadline of one
	    that is Available as it is. 0s means until deleted, whatever the maximum.
	  - A reservation ends as a whole, when none of its holds is left. A hold with a bind in flight
	    outlives its deadline until the bind has ended, and so does the reservation.
	  - Nodes are told apart by UID: one that was deleted and made again under its name has lost the
	    room. A cordoned node keeps it.
	  - Final phases are final. One that somebody wrote by hand is respected: the room is released.

# Starting

The objects are read, and the holds of those that were granted put into the ledger, before any pod
is (WaitAdopted): a pod that says what it was bound with then finds its hold and uses it up. Slots
used or given back by status, and objects past their deadline, hold nothing. Once the pods and nodes
are in, slots whose pod is gone are released and objects whose node is gone fail. Only then is the
Controller Synced and the server decides.

# Locks

Controller.mu guards the records. The ledger may be called with it held, the API server never is.
Whoever relies on a hold's absence reads the ledger's events first (catchUp), so that it is known
how the hold ended.

What may be touched: what a pod or a hold may do is decided in pkg/ledger; which objects lead to
which holds, and what their status says, is decided here.
*/
package reservations
