// Package deletedpods keeps the room of deleted pods for the pods that come back
// in their place: the workflow of the Gödel scheduler.
//
// A pod asks for it by the annotation globalreserve.io/reservation: "true" of its
// own, or of the Deployment that controls it; the prefix godel.bytedance.com/
// does as well. What lives where:
//
//   - decide.go       which pods' room is kept, for whom and for how long; pure
//   - keeper.go       the Keeper: called when a pod goes, it makes the hold
//   - create.go       the workers that write the Reservation objects
//   - deployments.go  the annotations of Deployments, watched and read live
//
// # From a pod to a Reservation
//
//	delete event   the pod's claim becomes a hold, in one step of the ledger
//	work queue     the Deployment is read live if only its annotation asks:
//	                 no annotation any more   the hold is released
//	               the Reservation is created, named after the pod:
//	                 created                  the controller adopts the hold
//	                 the name is taken        the hold moves to name-<uid>
//	                 refused for good         the hold is released, with an Event
//	                 not known                tried again until the hold ends
//
// Until the object is there, the matcher knows of the hold from here, so that a
// pod which comes back at once, as those of StatefulSets and Jobs do, finds it.
// A hold that is used up before its object exists gets none: the annotation of
// the pod that used it is its record.
//
// # Rules
//
//   - Only deletion keeps room: a pod that merely finished (a Job's, say) needs
//     none any more. A pod that finishes while it is being deleted is deleted.
//   - A pod deleted to make room for one of higher priority keeps none, or the
//     other pod would never get it.
//   - Who may use it: pods with the same index; without an index those of the
//     same controller, a Deployment's across all its ReplicaSets; without either
//     the pod of the same name, should it be created again.
//   - "false" on the pod stands above the Deployment's "true". The pod's ttl
//     stands above the Deployment's, that above the server's default; a ttl that
//     cannot be read, or is longer than the policy allows, leads to an Event and
//     the next best.
//   - Devices that the pod's claims were given are kept with its room, for no claim
//     in particular: a pod that comes in its place may name the same claims, which
//     nobody has while the room is kept, or others that the devices meet.
//   - In a rolling update each old pod's room is held for a new one. The new pods
//     use the holds up as they come; what surged stays until its ttl is over.
//
// # What a restart loses
//
// The hold is in memory from the delete event until the object exists, which is a
// few milliseconds while the API server answers. A server that stops in between,
// or is down while the pod is deleted, does not hold the room.
package deletedpods
