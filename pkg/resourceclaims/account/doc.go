/*
Package account is the account of DRA devices: who has which device. By it the server decides whether a write
may allocate devices to a ResourceClaim.

kube-scheduler writes what it allocates into the status of a claim, and the API server takes every such write
that is made on the newest state of that claim. Nobody looks at other claims. So two schedulers give one device
to two claims, and both writes succeed. A webhook that asks this account refuses the second.

# What is known, and what is decided

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

A grant is not yet a commit: another webhook may refuse the write, or another write to the claim may be first. The API
server may ask twice for one write, with another state of the claim. So what is granted to a claim is kept by the UID of
the claim and the resourceVersion that the write is made on, its base. resourceVersions of one resource are numbers that
grow, and a write is made only where its base is the newest state. So:

  - A state with a resourceVersion greater than the base decides the grant: its allocation is the claim's, and where it
    has none, the write was not made.
  - A state that is not greater than the base was before the write. It says nothing about the grant.
  - A write on a base that is older than the last state that was seen cannot be made. It is refused, see Outdated, and
    the API server, which tries first with what it has in its cache, asks again with the newest state.
  - Different grants on one base are all kept until one state decides them all. Only one of them can be made, so they
    are no obstacle to each other, and of what they consume of one device the most counts, not the sum. To other claims
    they are all taken.

A watch tells the states of an object in order, also where it lists anew, so an older state after a newer one is not
expected. Where it comes all the same (two watches, a list from a cache that is behind) it changes nothing. After a
restore of etcd resourceVersions can be lower than before: servers are to be restarted then, as Kubernetes asks for.

# What an allocation takes

A device goes back when its claim's state shows no allocation, or when the claim is gone: a claim that nobody uses (an
empty reservedFor), or that is being deleted, or that waits for binding conditions, has its devices.

Owners are counted. kube-scheduler keeps a set: it takes a device with two owners for free when one of them ends, and
the double goes on with a third. Here nobody is given a device that has any owner.

A result with adminAccess takes nothing. A result without a shareID takes the device whole: nobody else may have
anything of it. A result with one takes a share: the slice has to say that the device allows multiple allocations, and
of every capacity that the slice names the sum over the shares has to be within it. kube-scheduler takes no notice of
shares when it allocates a device whole that was shareable before. The account does.

A device that consumes counters takes them once while anybody has it, also when many share it. What all of them take has
to be within the shared counters of the pool. Only the counters that the device takes are looked at.

Slices count as they are now, and as for kube-scheduler only those of the pool's highest generation do. What a device
takes of counters that somebody has and that is in no slice any more nobody knows: until that one is gone, or the device
is published again, no device that takes counters of the pool is granted. kube-scheduler counts such devices as taking
none (kubernetes/kubernetes#140802), and gives the rest of the counters twice.

The API server lets a node's drivers write slices of any pool, as long as they name that node. So that one node cannot
spoil the pools of others, slices of other nodes do not count in a pool that has the name of a node with slices of its
own there. Drivers of nodes name their pools so. kube-scheduler looks at the slices of the node that the pod goes to.

# What is not known

A device may be in no slice: the scheduler saw the slice first, or the driver has taken it away, or is away itself.
Such a device is refused, since it may take counters, and nobody can tell what a share of it has. Likewise a device that
takes counters is refused while some slices of its pool are not there: kube-scheduler allocates nothing of such a pool,
and those that are allocated and not to be seen take counters, too. Such a scheduler asks again, and by then the watch
has caught up.

Compatibility groups (DRADeviceCompatibilityGroups, off by default in 1.37), taints and request policies are left to
kube-scheduler.

# Files

  - account.go  the types: who has what, and by which state
  - observe.go  ObserveClaim, ForgetClaim, GiveUp
  - grant.go    Grant
  - pool.go     ObserveSlice, ForgetSlice: which slices count
  - slice.go    what a slice says
  - device.go   the owners of one device, and the counters that it charges
  - read.go     Doubles, AppendDevices, OnNode
  - refusal.go  why something is refused
  - amounts.go  quantities by name

# Locks

Account.mu guards everything. Nothing is called with it held.

Nothing in this package may do I/O, read a clock or import client-go.
*/
package account
