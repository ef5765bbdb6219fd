// Package schedulerplugin is GlobalReserve inside a kube-scheduler: a plugin of its scheduling framework, named
// GlobalReserve. It knows the framework by the interfaces of k8s.io/kube-scheduler alone; cmd/globalreserve-scheduler
// compiles it into a kube-scheduler.
//
// The ledger is in this process, with the whole server of pkg/app around it (server.go): everybody else asks it over
// HTTP. There is one election, that of pkg/kube/election, and none of kube-scheduler's. All replicas follow pods and
// nodes, and keep pods out of their queues (PreEnqueue) until they lead, have taken over and decide. A process that
// loses the Lease decides nothing from that moment on, and ends itself when another one has it.
//
//	PreEnqueue keeps a pod back while the scheduler starts
//	PreFilter  reads it once, which reservations it may use, and what its claims of devices ask for
//	Filter     asks the ledger whether it fits the node; reasons are constant texts
//	Score      prefers the nodes that keep capacity for it
//	Reserve    takes the capacity, until a deadline. This is where a decision becomes true.
//	Unreserve  gives it back, where a later step of the cycle has failed
//	Bind       binds with the same care as the server does for everybody, and reserves anew what has expired
//	PostBind   forgets the pod
//
// kube-scheduler tries out what would be, for preemption, nominated pods and pod groups. None of that touches the
// ledger: it is kept in the cycle's state (cycle.go) and comes on top of the account when Filter asks.
//
// With its gate GenericWorkload kube-scheduler places a pod group in one cycle. These calls reach a plugin of 1.37:
//
//	PreFilter, Filter, Score and Reserve   for each pod, one after another, in a state that says
//	                                       IsPodGroupSchedulingCycle; extenders are sent each pod as any other
//	PlacementFeasible                      after each pod: kube-scheduler's own, of its GangScheduling alone
//	Unreserve                              for all, the last one first: the trial is over
//	Reserve and Permit                     for each pod, one after another, in an ordinary state, when the trial has
//	                                       found a place for enough of them. GangScheduling makes pods wait in Permit
//	                                       until there are enough.
//	PreBind, Bind                          for all of them at once
//
// So no call reports the end of the trial. At the Reserve of the first pod after it all nodes are known: there the
// plugin reserves the whole gang in one plan (group.go). kube-scheduler takes a gang that is refused there for one that
// was placed and tries it at once, so it is held (hold.go), for longer each time. Gangs of other kinds are placed pod
// by pod: the arbiter says at PreFilter whether one can start, and wakes its pods when it may.
//
// A refused pod is tried again when the ledger reports freed capacity that it fits (wake.go). The hints for
// cluster events (enqueue.go) are there besides, for pods the ledger was not the only one to refuse.
//
// What may be touched: this is the one package besides the commands that may import pkg/app: server.go alone does.
// Texts that get into a pod's condition are in reasons.go and in pkg/placement, and never change with the cluster's
// state.
package schedulerplugin
