/*
Package deviceclaims brings the devices of the nodes and the claims of pods into the ledger, and makes
their objects tell who has what.

ExtendedResource objects are the truth of which devices there are, ExtendedResourceClaim objects of what
is wanted; which pod has which devices is what the bound pods say in their annotation extended-resources, when they are
first seen bound. A server that starts does not know what it was then: where the status of claims names the pod, that
counts (recorded.go). The status of both kinds is a projection made from the ledger and repaired where somebody else
writes it. What lives where:

  - controller.go  the Controller: start, stop, where the definitions are missing
  - observe.go     what the watches tell
  - inventory.go   the devices, by name and by node; pure
  - resolve.go     Controller.Devices: what the claims that a pod names ask for
  - templates.go   the claims that pods get from templates
  - reader.go      the Reader: the same for a process that has its ledger from a server elsewhere
  - uses.go        who has what by the ledger, and what its events concern
  - project.go     what the status of an object has to be; pure
  - annotations.go the annotations of bound pods, put back where somebody changed them
  - write.go       the workers that write status, and the finalizer of claims
  - events.go      Events on the objects
  - refused.go     Events on pods that are refused because of their claims

# The life of a claim

	Pending --a pod that names it is bound--> Bound --a device's object is deleted--> Lost
	   ^                                        |                                      |
	   +---------the pod is deleted, or has finished-----------------------------------+

Lost becomes Bound again when the device's object comes back while the pod still has it. Every claim gets a
finalizer when it is first seen. A claim that is being deleted is given to no further pod, and goes when
the pod that has it is gone: until then its devices stay counted.

A pod may name a template in the place of a claim. The server that leads makes a claim of its own for such a pod, owned by
the pod, and under a name that follows from the pod's UID: whoever makes it finds it made already. Nobody may use it
for the pod but the one that it is owned by. It goes with the pod, by garbage collection.

# The life of a device

	Available --its claim is bound--> Bound --the pod is gone--> Available
	    any --its node is gone, or another object is the same device--> Offline

# Starting

Which devices bound pods have is said once devices and claims are in the ledger: they are observed anew then, as a
server that stands by may have seen them long before. Where the API server knows neither kind the server runs
without, refuses pods that name claims, and goes on asking.

# Locks

Controller.mu guards everything but the queue. The ledger may be called with it held, the API server
never is.

What may be touched: which devices a pod is given is decided in pkg/devices and pkg/ledger; what the
objects say of it is decided here.
*/
package deviceclaims
