// Package sim simulates clusters: whole servers, as the binary runs them, with an API server in memory, in one bubble
// of testing/synctest, where time is that of the simulation. All that is random comes from one seed.
//
//	cluster.go    a cluster, from its start to its end
//	load.go       what happens in it: pods and nodes that come, change and go
//	scheduler.go  schedulers that ask the servers, on what they have read some time ago
//	faults.go     servers that are stopped, killed, paused or cut off; clocks that jump
//	link.go       the network between a server and the API server, which loses, delays, repeats and refuses
//	judge.go      what has been promised, looked at with each write that the API server carries out
//
// The order in which goroutines run is Go's: a seed that fails may have to be run several times.
//
// What may be touched: a promise is judged by what the API server has stored and what schedulers were answered, never
// by what the servers say of themselves. What the driver and the schedulers ask the API server for does not fail.
package sim
