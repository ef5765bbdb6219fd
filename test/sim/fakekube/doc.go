// Package fakekube is kube-apiserver in memory, for clusters that are simulated in a bubble of testing/synctest.
//
// Next to nothing of it is a fake. The registries, the storage, the watch cache, the handlers, the server of
// CustomResourceDefinitions and the admission plugins are those of kube-apiserver. What is not:
//
//	etcd.go       etcd, as far as kube-apiserver uses one: revisions, history, watches, compaction, leases
//	transport.go  the network: a request is a call of the server's handler
//	server.go     who is asking is said by the client, and everybody may do everything
//	groups.go     only those groups that the product asks for
//	admission.go  only those admission plugins that the product depends on
//
// That it answers as a real kube-apiserver does is shown by package apianswers.
//
// What may be touched: nothing here knows of GlobalReserve, or makes anything fail. Package sim does both.
package fakekube
