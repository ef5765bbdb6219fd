package v1alpha1

// The annotations that ask for the capacity of a deleted pod and that show which capacity a pod was given.
const (
	// ReservationAnnotation set to "true" on a pod, or on the own metadata of the Deployment that
	// owns it, keeps the pod's capacity when the pod is deleted.
	ReservationAnnotation = "globalreserve.io/reservation"

	// ReservationIndexAnnotation on a pod: a pod with the same value in the same namespace may use
	// the capacity. On a Reservation's side it is ConsumerSpec.Index.
	ReservationIndexAnnotation = "globalreserve.io/reservation-index"

	// ReservationTTLAnnotation says how long the capacity is kept: whole seconds ("90") or a Go duration
	// ("90s", "1h30m"). A pod's own comes before its Deployment's.
	ReservationTTLAnnotation = "globalreserve.io/reservation-ttl"

	// MatchedReservationAnnotation is written to a pod that was given reserved capacity, with its
	// binding: namespace/name/slot.
	MatchedReservationAnnotation = "globalreserve.io/matched-reservation"

	// MatchedReservationUIDAnnotation is written beside it where the Reservation had an object then:
	// its metadata.uid, which distinguishes it from a later one of the same name.
	MatchedReservationUIDAnnotation = "globalreserve.io/matched-reservation-uid"

	// CallerAnnotation names who reserved, on a Reservation, or had a pod bound, on the pod: what they
	// use counts against the limits of that caller.
	CallerAnnotation = "globalreserve.io/caller"

	// RedirectedFromAnnotation is written to a pod whose Binding was redirected to the node where capacity
	// was kept for it: the node that its scheduler had sent it to.
	RedirectedFromAnnotation = "globalreserve.io/redirected-from"
)

const (
	// DrainLabel on a Reservation names the drain that keeps places by it for the pods of nodes that are drained.
	DrainLabel = "globalreserve.io/drain"

	// DrainedNodesAnnotation names the nodes of that drain, separated by commas.
	DrainedNodesAnnotation = "globalreserve.io/drained-nodes"

	// DrainedOwnerAnnotation names the owner of these pods: its kind, a slash, and its name.
	DrainedOwnerAnnotation = "globalreserve.io/drained-owner"

	// DrainWaitsForAnnotation says in words what one of these pods waits for; it is empty while nothing delays them.
	DrainWaitsForAnnotation = "globalreserve.io/drain-waits-for"
)

// The annotations of pods that claim devices.
const (
	// ExtendedResourceClaimsAnnotation on a pod names the ExtendedResourceClaims of its namespace that
	// it needs, separated by commas, at most MaxPodClaims; or for each container those that it needs:
	// container=claim,claim;container=claim. It has at most 4096 bytes.
	ExtendedResourceClaimsAnnotation = "globalreserve.io/extended-resource-claims"

	// ClaimTemplatePrefix comes before the name of an ExtendedResourceClaimTemplate among those names: the
	// pod gets a claim of its own, made from the template.
	ClaimTemplatePrefix = "template:"

	// ExtendedResourcesAnnotation is written to such a pod with its binding: the IDs of the devices it
	// was given, separated by commas, in the order of its claims and within a claim by object name. Where
	// the pod has claims for each container it says so, too: container=ID,ID;container=ID. What such a pod
	// asks for by count is of no container in particular, and comes last: =ID.
	ExtendedResourcesAnnotation = "globalreserve.io/extended-resources"
)

// The annotations of pods that are useful only together.
const (
	// GangAnnotation on a pod names the gang it is a member of: the pods of its namespace with the same value.
	GangAnnotation = "globalreserve.io/gang"

	// GangMinAnnotation on a pod says how many members the gang needs to be of use. Where members say
	// different things, the newest one counts until one is bound, and then those that are.
	GangMinAnnotation = "globalreserve.io/gang-min"
)

// RetryAnnotation is changed on a pending pod to have its scheduler try it again: kube-scheduler puts a pod that an
// extender refused back into its queue on any event about it, and a changed annotation is one.
const RetryAnnotation = "globalreserve.io/retry"

// The annotations of nodes that keep autoscalers from removing them, where reservations keep capacity that no pod uses.
const (
	// KeepsCapacityAnnotation, "true", is on a node that has been given the others. All three come and go by server-side
	// apply under one field manager, so that what others have written stays.
	KeepsCapacityAnnotation = "globalreserve.io/keeps-capacity"

	// ScaleDownDisabledAnnotation, "true", is what cluster-autoscaler goes by.
	ScaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

	// DoNotDisruptAnnotation, "true", is what Karpenter goes by.
	DoNotDisruptAnnotation = "karpenter.sh/do-not-disrupt"
)

// PodReasonHeldBack is the reason that the server gives the condition PodScheduled of a pod that a limit keeps waiting,
// so that a new node would be of no use to it. cluster-autoscaler and Karpenter make nodes for pods with the reason
// Unschedulable alone.
const PodReasonHeldBack = "GlobalReserveLimit"

// The annotations of reservations under the prefix of the Gödel scheduler, whose workflow works unchanged. Each means
// what that without Godel in its name means.
const (
	GodelReservationAnnotation      = "godel.bytedance.com/reservation"
	GodelReservationIndexAnnotation = "godel.bytedance.com/reservation-index"
	GodelReservationTTLAnnotation   = "godel.bytedance.com/reservation-ttl"

	// GodelMatchedReservationAnnotation is written beside MatchedReservationAnnotation to a pod that
	// carries annotations of this prefix: namespace/name-placeholder.
	GodelMatchedReservationAnnotation = "godel.bytedance.com/matched-reservation-placeholder"
)
