/*
Package resourceclaims sees to it that a device of DRA is given once. It follows ResourceClaims and ResourceSlices, and
decides for the webhook whether a write may give a claim the devices that it names. What counts as taken is
pkg/resourceclaims/account.

  - controller.go  Controller: what is followed, and the decision
  - settle.go      what became of writes that were granted
  - classes.go     which resources DeviceClasses map to devices
  - doubles.go     tells of devices that have more owners than they may
  - held.go        which claims have devices while their pods have no node
  - lean.go        what is kept of an object

# A grant is not a write

The API server asks before it writes. Another webhook may refuse the write after that, or another write to the claim may
be faster. So a granted device counts as taken until the watch shows how it ended: a newer state of the claim with
the devices, or without. Where neither comes within grace and another claim is refused for it, or where neither comes within
abandonedAfter, the claim is patched, one annotation of it. Each write of a claim
is conditional on the version that the API server showed us, so after the patch no write that was granted before can be
carried out, and what the patch returns tells whether one was. Where the server may not patch, it waits until the API
server has ended the request, abandonedAfter, and then looks at the claim once more.

# When another server takes over

What the server before has granted is in its memory only. It may not be written yet: the API server has its answer, and a
slow webhook or etcd is in between, or the server was suspended before it answered. No fence helps, as for bindings: a
validating webhook cannot write a term into what it lets pass. But it is known which claims such a write can
be for: those that have no devices in the first list, which is read when nobody else can decide any more. Each of them is
patched, as above, before anything is granted. The requests that come meanwhile wait, and then are refused for
another try. A cluster where no claim waits for devices pays nothing for that, others one write for each claim that does.
Where a claim cannot be patched, grants wait for abandonedAfter.

A claim that is created later cannot have been granted anything: whoever decides looks whether it still does after it has
granted, so the request had begun, and the claim was there, while it held the Lease.

A server that gets its own Lease back goes on with what it knows. Nobody else has decided, and what it has granted counts
as taken whatever the watch has missed. For the same reason the age of the watch is no danger: what has come late is
that devices are free, or their slices. Still nothing is granted when the watch has been silent for too long.

# Who pays

Nothing is watched where the cluster has no resource.k8s.io/v1, and nobody waits for what cannot be read: only claims
are refused then. Pods without claims of devices never come here.

# Locks

Controller.mu guards the writes that are open, and orders what the watch tells and what a patch returns: a claim that is
gone stays gone. Nobody is called with it held but the account, which has its own lock.
*/
package resourceclaims
