/*
Package resourceclaims sees to it that a device of DRA is given once. It follows ResourceClaims and ResourceSlices, and
decides for the webhook whether a write may give a claim the devices that it names. What counts as taken is
pkg/resourceclaims/account.

  - controller.go  Controller: what is followed, and the decision
  - settle.go      what became of writes that were granted
  - classes.go     where DRA gives devices for resources that pods ask for by count
  - doubles.go     tells of devices that have more owners than they may
  - held.go        which claims have devices while their pods have no node, and who has those of a node
  - lean.go        what is kept of an object

# A grant is not a write

The API server asks before it writes. Another webhook may refuse the write after that, or another write to the claim may
be faster. So a granted device counts as taken until the watch shows how it ended: a newer state of the claim with the
devices, or without. Neither may come within grace, while another claim is refused for the device, or neither within
abandonedAfter. Then the server patches one annotation of the claim. Each write of a claim is conditional on the version
that the API server showed us. So after the patch no write that was granted before can be carried out, and what the
patch returns tells whether one was. Where the server may not patch, it waits until the API server has ended the request
(abandonedAfter), and then looks at the claim once more.

# When another server takes over

What the server before has granted is in its memory only. The write may still be under way: the API server has the
answer, and a slow webhook or etcd is in between, or the server was suspended before it answered. The fence does not
help as it does for bindings: a validating webhook cannot write a term into what it lets pass. But it is known which
claims such a write can be for: those that have no devices in the first list, which is read when no other server can
decide any more. Each of them is patched, as above, before anything is granted. The requests that come meanwhile wait,
and are then refused for another try. That costs one write for each claim that waits for devices, and nothing where no
claim does. Where a claim cannot be patched, grants wait for abandonedAfter. A claim may be so large that etcd does not
take another annotation, whoever made it so. Such a claim is granted nothing (account.MaxClaimSize), and need not be
patched: what is larger in a list, with blanks, was larger in each review.

A claim that is created later cannot have been granted anything by the server before. After each grant a server checks
that it still decides. So the request had begun, and the claim was there, while that server had the Lease.

A server that gets its own Lease back goes on with what it knows. No other server has decided, and what it has granted
counts as taken whatever the watch has missed. For the same reason an old watch is no danger: the news that it lacks are
that devices became free, or changes of slices. Still nothing is granted when the watch has been silent for too long.

# Who pays

Nothing is watched where the cluster has no resource.k8s.io/v1. Where the objects cannot be read, only claims are
refused, and nothing else waits. Pods without ResourceClaims never come here.

# Locks

Controller.mu guards the writes that are open, and orders what the watch tells and what a patch returns: a claim that is
gone stays gone. Only the account, which has its own lock, is called with it held.
*/
package resourceclaims
