/*
Package account is the account of DRA devices: who has which device. By it the server decides whether a write
may allocate devices to a ResourceClaim. docs/decisions/0011 says why, and docs/dra.md what counts.

Observations come from watches of ResourceClaims and ResourceSlices and are always recorded: truth wins, also where
one device has two owners. A Grant is a decision about a write that the API server is about to make. All devices
of a claim are granted, or none.

	           Grant                     a newer state, with an allocation
	nothing ----------> granted (pending) --------------------------------> allocated, with exactly that
	   ^                    |                                                    |
	   +--------------------+                                                    |
	   |  a newer state, without an allocation: the write was not made           |
	   |  GiveUp: nothing was seen for longer than a request can last            |
	   +-------------------------------------------------------------------------+
	      a newer state, without an allocation, or the claim is gone

What is granted is kept by the claim's UID and the resourceVersion that the write is made on, its base. These versions
are numbers that grow, and a write is made only where its base is the newest state. So a state that is not greater than
the base says nothing about the grant, and a write on an older base than the last state seen is refused (Outdated): the
API server asks again with the newest. Different grants on one base are all kept until one state decides them. Only one
can be made, so they are no obstacle to each other: of what they consume of one device the most counts, not the sum.

kube-scheduler takes no notice of shares when it allocates a device whole that was shareable before. The account does.

  - account.go, device.go, amounts.go  the types: who has what by which state, owners and counters, quantities by name
  - observe.go, pool.go                what claims and slices say, and which slices count
  - grant.go, refusal.go, read.go      Grant, why something is refused, and reads

A change of a slice only makes its pool stale. The next grant of a device of the pool, or the next read, makes it anew
from the slices; until then who has a device is kept up to date, and what slices say of it is not looked at.

Account.mu guards everything, and nothing is called with it held. Nothing in this package may do I/O, read a clock or
import client-go.
*/
package account
