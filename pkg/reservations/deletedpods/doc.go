// Package deletedpods keeps the capacity of deleted pods for the pods that come back in their place: the workflow of
// the Gödel scheduler. docs/reservations.md has the annotations that ask for it.
//
//   - wish.go         which pods' capacity is kept, for whom and for how long; pure
//   - keeper.go       the Keeper: called when a pod goes, it makes the slot
//   - missed.go       what ends while another server decides, or none
//   - create.go       the workers that write the Reservation objects
//   - deployments.go  the annotations of Deployments, watched
//
// From a pod to a Reservation:
//
//	delete event   the pod's allocation becomes a slot, in one step of the ledger
//	work queue     the Reservation is created, named after the pod:
//	                 created                  the controller adopts the slot
//	                 the name is taken        the slot moves to name-<uid>
//	                 refused for good         the slot is released, with an Event, if no
//	                                          earlier try made the object after all
//	                 not known                tried again until the slot ends
//
// Until the object is there, the matcher knows of the slot from here, so that a pod which comes back at once finds it.
// A slot that is used up before its object exists gets none: the annotation of the pod that used it is its record.
//
//   - Only deletion keeps capacity: a pod that merely finished needs none any more. A pod that finishes while it is
//     being deleted is deleted. One deleted for a pod of higher priority keeps none, or the other would never get it.
//   - What counts of a Deployment is what the watch knows when the pod goes, or at a take-over. One that is being
//     deleted asks for nothing, as no pod of it will come back.
//   - A ttl that cannot be read, or is longer than the policy allows, leads to an Event and the next best.
//   - Devices are kept for no claim in particular: a pod that comes in its place may name the same claims, or others.
//
// A server that stands by remembers the ends of pods that it sees (missed.go): when it takes over it keeps what
// nobody kept. The end of a pod that no server saw leaves nothing to be kept.
package deletedpods
