/*
Package dra makes sure that a device of DRA is given once. It follows ResourceClaims and ResourceSlices, and
decides for the webhook whether a write may give a claim the devices that it names. What counts as taken is
pkg/dra/account. Why so, and what a server does that takes over: docs/decisions/0011 and docs/dra.md.

  - controller.go  Controller: what is followed, and the decision
  - settle.go      what became of writes that were granted
  - classes.go     where DRA gives devices for resources that pods ask for by count
  - doubles.go     reports devices that have more owners than they may
  - held.go        which claims have devices while their pods have no node, and who has those of a node
  - lean.go        what is kept of an object

A takeover relies on this: a claim that is created later cannot have been granted anything by the server before. After
each grant a server checks that it still decides, so the claim was there while that server had the Lease. A server that
gets its own Lease back goes on with what it knows: no other has decided. An old watch is no danger: it lacks only that
devices became free, or changes of slices. Still nothing is granted when it has been silent for too long.

Controller.mu guards the writes that are open, and orders what the watch reports and what a patch returns: a claim that
is gone stays gone. Only the account, which has its own lock, is called with it held.
*/
package dra
