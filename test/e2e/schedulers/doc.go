// Package schedulers has schedulers of several kinds compete for the same nodes on a real control plane:
// examples/firstscheduler and examples/python, kube-schedulers in a cluster that is nearly full, and four of different
// kinds at once: a kube-scheduler behind the extender, a globalreserve-scheduler, the gang scheduler on the REST API,
// and one that just binds and is arbitrated by admission. It needs what `make build scheduler controlplane` makes.
package schedulers
