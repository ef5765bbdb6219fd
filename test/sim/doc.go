// Package sim simulates clusters: whole servers, as the binary runs them, with an API server in memory, in one bubble
// of testing/synctest, where time is that of the simulation. All that is random comes from one seed.
//
//	cluster.go       a cluster, from its start to its end
//	load.go          what happens in it: pods and nodes that come, change and go
//	reservations.go  Reservations of users
//	scheduler.go     schedulers that ask the servers, on what they have read some time ago, or bind by themselves
//	gangs.go         one that reserves for gangs
//	crews.go         gangs whose pods say that they are one
//	limits.go        what namespaces and schedulers may use, and the policy file
//	devices.go       devices of nodes, and claims of them
//	dra.go           devices of ResourceSlices, which schedulers give to ResourceClaims
//	apiservers.go    two API servers on one etcd, which restart and hear late of changes
//	faults.go        servers that are stopped, killed, paused or cut off; clocks that jump
//	link.go          the network between a server and others, which loses, delays, repeats and refuses
//	asking.go        how schedulers and the API servers reach the servers
//	judge.go         what has been promised, looked at with each write that the API servers carry out
//	promises.go      what is kept for pods to come
//	claims.go        who has which device
//
// The folder planted has mistakes that are made on purpose, for the simulation to find.
//
// The order in which goroutines run is Go's: a seed that fails may have to be run several times.
//
// What may be touched: a promise is judged by what the API server has stored and what schedulers were answered,
// never by what the servers say of themselves, but for whether that agrees with it. What the driver and the
// schedulers ask the API server for does not fail.
package sim
