// Package large measures what a server does for eight schedulers of a cluster with 30,000 nodes that is nearly full.
//
//	large_test.go       the measurement
//	schedulers_test.go  model schedulers, which ask over HTTP as kube-schedulers do
//	apiserver_test.go   the API server, which is package fakekube behind HTTP: it takes 2,000 binds a second
//
// The server is a process of its own, as it is shipped; schedulers and API server are one other process. So the
// processor time that is reported is the server's alone, and the rate is that of all of them on one machine.
//
// What may be touched: what is measured is asked for in the way schedulers ask. Nothing here is part of a check.
package large
