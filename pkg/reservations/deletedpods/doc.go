// Package deletedpods keeps the capacity of deleted pods for the pods that come back
// in their place: the workflow of the Gödel scheduler.
//
// A pod asks for it by the annotation globalreserve.io/reservation: "true" of its
// own, or of the Deployment that controls it; the prefix godel.bytedance.com/
// does as well. What lives where:
//
//   - decide.go       which pods' capacity is kept, for whom and for how long; pure
//   - keeper.go       the Keeper: called when a pod goes, it makes the slot
//   - missed.go       what ends while another server decides, or none
//   - create.go       the workers that write the Reservation objects
//   - deployments.go  the annotations of Deployments, watched and read live
//
// # From a pod to a Reservation
//
//	delete event   the pod's allocation becomes a slot, in one step of the ledger
//	work queue     the Deployment is read live if only its annotation asks:
//	                 no annotation any more   the slot is released
//	               the Reservation is created, named after the pod:
//	                 created                  the controller adopts the slot
//	                 the name is taken        the slot moves to name-<uid>
//	                 refused for good         the slot is released, with an Event, if no
//	                                          earlier try made the object after all
//	                 not known                tried again until the slot ends
//
// Until the object is there, the matcher knows of the slot from here, so that a
// pod which comes back at once, as those of StatefulSets and Jobs do, finds it.
// A slot that is used up before its object exists gets none: the annotation of
// the pod that used it is its record.
//
// # Rules
//
//   - Only deletion keeps capacity: a pod that merely finished (a Job's, say) needs
//     none any more. A pod that finishes while it is being deleted is deleted.
//   - A pod deleted to make capacity for one of higher priority keeps none, or the
//     other pod would never get it.
//   - Who may use it: pods with the same index; without an index those of the
//     same controller, a Deployment's across all its ReplicaSets; without either
//     the pod of the same name, should it be created again.
//   - "false" on the pod stands above the Deployment's "true". The pod's ttl
//     stands above the Deployment's, that above the server's default; a ttl that
//     cannot be read, or is longer than the policy allows, leads to an Event and
//     the next best.
//   - The devices that the pod's device claims were given are kept with its capacity, for
//     no claim in particular. A pod that comes in its place may name the same claims,
//     which nobody has while the capacity is kept, or others that the devices meet.
//   - In a rolling update each old pod's capacity is kept for a new one. The new pods
//     use the slots up as they come. The slots of surplus pods stay until their ttl is over.
//
// # From one server to the next
//
// The slot is in memory from the delete event until the object exists, which is a
// few milliseconds while the API server answers. A server that stands by remembers
// the ends of pods that it sees (missed.go): when it takes over it keeps what nobody
// kept. The devices of such a pod are not kept: who stands by reads no device claims. The
// end of a pod that no server saw leaves nothing to be kept.
package deletedpods
