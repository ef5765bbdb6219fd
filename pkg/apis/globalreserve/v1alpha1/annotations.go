package v1alpha1

// The annotations that ask for the capacity of a deleted pod and that tell which capacity a pod was given.
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
	// its metadata.uid, which tells it from a later one of the same name.
	MatchedReservationUIDAnnotation = "globalreserve.io/matched-reservation-uid"

	// CallerAnnotation names who reserved, on a Reservation, or had a pod bound, on the pod: what they
	// use counts against the limits of that caller.
	CallerAnnotation = "globalreserve.io/caller"
)

// The annotations of pods that claim devices.
const (
	// ExtendedResourceClaimsAnnotation on a pod names the ExtendedResourceClaims of its namespace that
	// it needs, separated by commas, at most MaxPodClaims.
	ExtendedResourceClaimsAnnotation = "globalreserve.io/extended-resource-claims"

	// ExtendedResourcesAnnotation is written to such a pod with its binding: the IDs of the devices it
	// was given, separated by commas, in the order of its claims and within a claim by object name.
	ExtendedResourcesAnnotation = "globalreserve.io/extended-resources"
)

// The annotations of reservations under the prefix of the Gödel scheduler, whose workflow works unchanged.
const (
	// GodelReservationAnnotation means what ReservationAnnotation means.
	GodelReservationAnnotation = "godel.bytedance.com/reservation"

	// GodelReservationIndexAnnotation means what ReservationIndexAnnotation means.
	GodelReservationIndexAnnotation = "godel.bytedance.com/reservation-index"

	// GodelReservationTTLAnnotation means what ReservationTTLAnnotation means.
	GodelReservationTTLAnnotation = "godel.bytedance.com/reservation-ttl"

	// GodelMatchedReservationAnnotation is written beside MatchedReservationAnnotation to a pod that
	// carries annotations of this prefix: namespace/name-placeholder.
	GodelMatchedReservationAnnotation = "godel.bytedance.com/matched-reservation-placeholder"
)
