// Package schedulers has schedulers of several kinds compete for the same nodes on a real control plane:
// examples/firstscheduler, which its README speaks of; examples/embedded, with the server in its own process
// and a kube-scheduler beside it; and four of different kinds at once: a kube-scheduler behind the extender, a
// globalreserve-scheduler, the gang scheduler on the REST API, and one that just binds and is arbitrated by
// admission. It needs what `make build scheduler controlplane` makes.
package schedulers
