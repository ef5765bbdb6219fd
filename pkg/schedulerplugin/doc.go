// Package schedulerplugin is GlobalReserve inside a kube-scheduler: a plugin of its
// scheduling framework, named GlobalReserve. It knows the framework by the
// interfaces of k8s.io/kube-scheduler alone; cmd/globalreserve-scheduler compiles it
// into a kube-scheduler.
//
// # Where the ledger is
//
// The ledger is in this process, with the whole server of pkg/app around it: everybody else reserves from it over HTTP,
// while this scheduler asks it by function calls (server.go). A scheduler whose ledger is in a server elsewhere asks
// that by the extender.
//
// There must be one ledger in a cluster, and the scheduler that schedules must be the one that has it. So there is one
// election, that of pkg/election, and none of kube-scheduler's: its leaderElection.leaderElect is false, which
// cmd/globalreserve-scheduler insists on. All replicas follow pods and nodes, and keep pods out of their queues
// (PreEnqueue) until they hold the Lease "globalreserve", have taken over and decide. Until then they pass on what they
// are asked over HTTP. A standalone server takes part in the same election: while it leads, no such scheduler
// schedules. A process that loses the Lease decides nothing from that moment on, and ends itself when another one has
// it. Until the account is complete pods are refused, and woken when it is.
//
// # One pod
//
//	PreEnqueue keeps it back while the scheduler starts
//	PreFilter  reads the pod once, which reservations it may use, and what its claims of
//	           devices ask for
//	Filter     asks the ledger whether the pod fits the node; reasons
//	           are constant texts
//	Score      prefers the nodes that keep capacity for the pod
//	Reserve    takes the capacity. This is where a decision becomes true.
//	Unreserve  gives it back, where a later step of the cycle has failed
//	Bind       binds with the same care as the server does for everybody: the
//	           annotation of the reservation that was used, answers that got lost
//	PostBind   forgets the pod
//
// The claim a Reserve makes has a deadline, so that a scheduler that dies leaves
// nothing behind. A pod that waits longer than that in Permit, or for its volumes,
// is reserved anew when it is bound, or refused then.
//
// # Simulations
//
// kube-scheduler tries out what would be: preemption takes victims off a node and
// asks Filter again, nominated pods are added to one, and a pod group is placed as a
// whole, through Reserve, before any of it is real (group.go). None of that touches the ledger.
// What is added and taken away is kept in the cycle's state (cycle.go) and comes on
// top of the ledger's account when Filter asks.
//
// # Gangs
//
// With its gate GenericWorkload kube-scheduler places a pod group in one cycle. What a plugin of 1.37 hears of that:
//
//	PreFilter, Filter, Score and Reserve   for each pod, one after another, in a state that says
//	                                       IsPodGroupSchedulingCycle; extenders are sent each pod as any other
//	PlacementFeasible                      after each pod: kube-scheduler's own, of its GangScheduling alone
//	Unreserve                              for all, the last one first: the trial is over
//	Reserve and Permit                     for each pod, one after another, in an ordinary state, when the trial has
//	                                       found a place for enough of them. GangScheduling has pods wait in Permit until
//	                                       there are enough.
//	PreBind, Bind                          for all of them at once
//
// So no extension point is told of the end of the trial. The first at which all nodes are known is the Reserve of the
// first pod after it. There the plugin reserves the whole gang in one plan, before any of it is bound; what it finds
// out counts for the pods that follow (group.go). The trial and those pods share what PreFilter left in the cycle's
// state. A pod that another plugin refused at the very end of the trial looks like all others: its capacity ends at its
// deadline.
//
// kube-scheduler takes a gang that is refused there for one that was placed: its PodGroup's condition says so, and it
// is tried again at once. So a refused gang is held (hold.go): PreFilter refuses its pods, for longer each time.
//
// Gangs of other kinds are placed pod by pod. The arbiter says at PreFilter whether a gang can start, and has its pods
// woken when it may.
//
// # Waking pods up
//
// A refused pod is tried again when capacity is freed that it fits (wake.go): at the
// ledger's word, because much of what frees capacity is no event of the cluster, and
// the highest priority first. The hints for cluster events (enqueue.go) are there
// besides, for pods the ledger was not the only one to refuse.
//
// What may be touched: this is the one package besides the commands that may import pkg/app, as it is a composition
// root like them: server.go alone does. Texts that get into a pod's condition are in reasons.go and in pkg/placement,
// and never change with the cluster's state.
package schedulerplugin
