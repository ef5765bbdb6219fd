/*
Package extendeddevices brings the devices of the nodes and the claims of pods into the ledger, and writes
who has what into the status of their objects. docs/devices.md describes both kinds for users.

ExtendedResource objects are the truth of which devices there are, and ExtendedResourceClaim objects of what is wanted.
The annotation extended-resources of a bound pod, as it is when the pod is first seen bound, says which devices the pod
has. A server that starts does not know what the annotation was then. So where the status of claims names the
pod, the status counts (recorded.go). Otherwise the status of both kinds is a projection made from the ledger, and
repaired where somebody else writes it. What lives where:

  - controller.go  the Controller: start, stop, where the definitions are missing
  - observe.go     what the watches report
  - inventory.go   the devices, by name and by node; pure
  - resolve.go     Controller.Devices: what the claims that a pod names ask for
  - templates.go   the claims that pods get from templates
  - recorded.go    which devices a bound pod is believed to have
  - uses.go        who has what by the ledger, and what its events concern
  - project.go     what the status of an object has to be; pure
  - annotations.go the annotations of bound pods, put back where somebody changed them
  - write.go       the workers that write status, and the finalizer of claims
  - events.go, refused.go  Events on the objects, and on pods that are refused because of their claims

A claim, and a device:

	Pending --a pod that names it is bound--> Bound --a device's object is deleted--> Lost
	   ^                                        |                                      |
	   +---------the pod is deleted, or has finished-----------------------------------+

	Available --its claim is bound--> Bound --the pod is gone--> Available
	    any --its node is gone, or another object is the same device--> Offline

Lost becomes Bound again when the device's object comes back while the pod still has it. A claim that is being deleted
goes when the pod that has it is gone (a finalizer): until then its devices stay counted.

Bound pods are observed anew once devices and claims are in the ledger. They have their devices there only then: a
server that stands by may have seen the pods long before.

Controller.mu guards everything but the queue. The ledger may be called with it held, the API server never is.

What may be touched: pkg/devices and pkg/ledger decide which devices a pod is given. This package decides what the
objects say of it.
*/
package extendeddevices
