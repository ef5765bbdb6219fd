// Package four lets four schedulers of different kinds compete for the same nodes: a kube-scheduler
// behind the extender, a globalreserve-scheduler, the group scheduler on the REST API, and one that
// just binds and is arbitrated by admission. It needs bin/controlplane, bin/globalreserve and
// bin/globalreserve-scheduler (make build scheduler controlplane).
package four
