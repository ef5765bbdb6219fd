// Package decide and its folder reserve are the only place that decides on requests. Every integration path (extender,
// REST, Go API, plugin, admission) decodes a request, asks the arbiter, and encodes the answer.
//
//	request -> which pod?          pods.go       the API server's copy, never the request's
//	        -> the question        pkg/placement what it requests, its slots, its devices
//	        -> the gates           pkg/decide/gates     may it be given anything at all?
//	        -> the ledger          pkg/ledger    is there capacity?
//	        -> carry out           flight.go     the Binding, until its fate is known
//
// A new rule about who may have what goes into Gates.Refuse of pkg/decide/gates.
//
// # One bind
//
//	find the pod      the watch's store, after a short wait for it; else a live read
//	pass the gates    refused: nothing was sent
//	ledger.StartBind  refused: nothing was sent
//	POST binding      with the UID and the resourceVersion as preconditions
//	settle            Confirm, or BindFailed, or go on until it is known
//
// A bind runs in a goroutine of the Arbiter's own, a flight, keyed by pod and node. A repeat of the same bind joins the
// flight, so there is one POST and all get its answer; a caller that hangs up ends nothing. The same pod bound to
// another node meanwhile is refused by the ledger.
//
// Only so many POSTs are under way at a time, and the flights take turns (turns.go). Otherwise each of them would take
// longer than its time where a scheduler decides faster than the API server binds.
//
// # When the pod changes
//
// What was decided holds for the pod that was looked at. It may be resized, or its annotations changed, before the
// POST is carried out, so the API server is to carry it out on that version alone and answers 409 where there is
// another (apiserver pkg/storage, Preconditions.Check). The flight reads the pod live then. Schedulers write
// conditions of a pod right before they bind it. So where the pod as it is now asks for the same, the Binding is sent
// again for its new version, the first time at once. Where the pod asks for something else, the capacity is given back,
// and the error asks the pod's scheduler to look at it again. Both are safe even while the fate of earlier POSTs is not
// known: these name a version that the pod will never have again.
//
// # When the answer is lost
//
// A POST that times out, loses its connection or gets a 5xx may have been carried out, or may still be waiting inside
// the API server and be carried out later. The same holds for a 409 that a live read does not explain: the API server
// answers 409 for every storage error it has no better code for, storage timeouts included (kubernetes
// pkg/registry/core/pod/storage, BindingREST.assignPod). Giving the capacity back then could promise it twice. So the
// flight reads the pod live, which settles the matter where the pod is
//
//   - bound to our node: Confirm. The promise is kept, no matter whose POST it was.
//   - bound elsewhere: BindFailed. Bindings are for ever, so ours can no longer
//     be carried out; the watch reports the other node.
//   - gone, replaced, or being deleted: BindFailed. The UID precondition, and
//     the API server's refusal to bind a pod that is being deleted, keep a late
//     POST from doing anything. The watch, not the arbiter, reports the deletion
//     to the ledger: a 404 for the name alone must not outlaw a UID.
//
// Where the pod is still unbound, and at the same version, a POST may be under way. Sending the same Binding again is
// harmless, because the API server carries out one of the two and answers 409 to the other; its answer settles the
// matter like the first one's. That goes on, with growing pauses, until the outcome is known. At the deadline the
// callers get an Error of outcome Unknown and the flight goes on without them. The allocation stays Binding until then.
//
// A definite refusal of the repeated POST (403 because rights were withdrawn, 422 ...) says nothing of the one before
// it, which may have passed that check already. It only counts once every earlier POST is certainly over: the API
// server abandons a request after --request-timeout (60s by default), so when bindSettle has passed since the last POST
// of unknown fate was sent, and the pod is read live and is unbound, the capacity is given back. To make that moment
// come whatever the answers are, a flight stops sending bindSettle after its deadline and only reads from then on.
//
// Flights end when their outcome is known, or when Stop cancels them; they are bounded by Options.MaxInFlight. After a
// restart nothing is remembered: the watch is the source of truth.
//
// # Bindings of others
//
// The API server asks about Bindings that others send, and about pods created with a node (admit.go). Allowing is not
// binding: another webhook may refuse, the caller may be gone, or the Binding may wait in the API server for long and
// be carried out later. So it is an allowance (allowances.go) until it shows up bound, and after grace it is withdrawn.
// Giving its capacity back while it may still be carried out could promise it twice. Therefore every Binding is allowed
// with the pod's present resourceVersion as a precondition, which the API server checks when it writes (kubernetes
// pkg/registry/core/pod/storage, BindingREST.setPodNodeAndMetadata). Before the capacity is given back, the pod is
// patched, which changes its resourceVersion: if the pod that the patch returns is unbound, no Binding allowed before
// can be carried out any more. As long as the patch's outcome is not known, the allocation stays and the patch is
// repeated.
//
// A repeat of an allowed Binding is the same allocation, and does not put its end off. After that end a repeat is
// refused until the first is withdrawn. A Binding that a policy or a quota refuses each time after it was allowed is
// allowed less and less often (undone.go). A Binding for another node does not wait long for the first (settleEarly).
// A Binding of a pod that is being bound by a flight is refused: the flight takes the allocation back by its own rules.
//
// The API server asks twice about a pod that is created with a node (admit_create.go). PlanPod says what it would be
// given while webhooks may still write that into it. AdmitPod grants it when the API server has filled in and checked
// the pod and is about to write it. Nothing can stop a creation that is under way. So where the pod does not show up,
// its capacity stays taken for createGrace, when the API server must have abandoned the request. A quota, or another
// validating webhook, can refuse the pod after all, and its sender may try for ever. So creations that are not seen yet
// may keep only a small share of the nodes for each namespace and each caller. After a creation that did not happen,
// its namespace waits.
//
// # Resizes
//
// The API server asks about resizes of pods, too (resize.go). Kubernetes counts a pod for the largest of what its spec
// asks for, what its kubelet has allocated and what is in force, so a pod that grows counts for more from the write of
// its spec on: no kubelet and no scheduler decides before. What takes no more than the pod counts for is allowed
// without a look at anything. The rest is an allowance like a Binding. The write is conditional by itself: where the
// pod has changed since the API server asked, the write fails, or is asked about again (kubernetes
// staging/src/k8s.io/apiserver/pkg/registry/generic/registry, Store.Update). So any newer version of the pod shows what
// became of the resize. Where there is none, the server makes one by a patch. A bind that begins before a resize of its
// pod was seen counts for the resize as well.
//
// At most MaxAllowances Bindings, creations and resizes are remembered, in memory only. One namespace may have as many
// as are still free, so no namespace can keep the others from binding. Stop settles all but creations, which nothing
// can stop, so that nothing else is under way when the next server reads the cluster. After a crash, or where the Lease
// is lost, nobody knows of them. The fence refuses a Binding that was allowed in an earlier term, as it carries that
// term. It does not look at creations and resizes of pods: one that another webhook holds up is carried out after the
// next server has read the cluster. It is an observation like any other then, and may overcommit its node.
//
// # What may be touched
//
// Gangs that ask for capacity (/reserve) are decided on by the folder reserve, which stands above this package and uses
// it. What a gang needs after its first pod is bound is kept here (gang.go and the files gang_*).
//
// The API server's answers are sorted in one place (pkg/kube/apiwrite). The package knows nothing of HTTP handlers.
// What becomes of a pod that was refused is pkg/requeue's.
package decide
