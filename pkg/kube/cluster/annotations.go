package cluster

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Controller names what controls a pod. The zero value means nothing does.
type Controller struct{ Kind, Name string }

// Keep says whether the capacity of a pod is to be kept once the pod is deleted.
type Keep uint8

// KeepUnset leaves it to the pod's Deployment.
const (
	KeepUnset Keep = iota
	KeepYes
	KeepNo
)

// Annotations are what the annotations of reservations say, on a pod or on the Deployment that controls it. They are
// accepted under either prefix; where both say something, our own counts.
type Annotations struct {
	// Index is the value of reservation-index.
	Index string
	// Keep is what reservation says: "true", anything else, or nothing.
	Keep Keep
	// TTL is the text of reservation-ttl, as it was written.
	TTL string
	// Godel says that some annotation had the prefix of the Gödel scheduler.
	Godel bool
	// Matched is the slot the pod was bound with, of the pod's own namespace.
	Matched ledger.SlotRef
	// MatchedUID is the UID of that slot's reservation, or empty.
	MatchedUID types.UID
}

var godelAnnotations = []string{
	v1alpha1.GodelReservationAnnotation, v1alpha1.GodelReservationIndexAnnotation, v1alpha1.GodelReservationTTLAnnotation,
}

// ReadAnnotations reads the annotations of an object of the namespace; nil means that it has none of them.
func ReadAnnotations(namespace string, annotations map[string]string) *Annotations {
	if len(annotations) == 0 {
		return nil
	}
	m := Annotations{
		Index: kinds.Clip(cmp.Or(annotations[v1alpha1.ReservationIndexAnnotation],
			annotations[v1alpha1.GodelReservationIndexAnnotation]), maxText),
		TTL: kinds.Clip(cmp.Or(annotations[v1alpha1.ReservationTTLAnnotation],
			annotations[v1alpha1.GodelReservationTTLAnnotation]), maxTTL),
		Godel: slices.ContainsFunc(godelAnnotations, func(key string) bool { _, ok := annotations[key]; return ok }),
	}
	switch cmp.Or(annotations[v1alpha1.ReservationAnnotation], annotations[v1alpha1.GodelReservationAnnotation]) {
	case "":
	case "true":
		m.Keep = KeepYes
	default:
		m.Keep = KeepNo
	}
	if ref, ok := parseMatched(annotations[v1alpha1.MatchedReservationAnnotation]); ok && ref.Namespace == namespace {
		m.Matched, m.MatchedUID = ref, types.UID(kinds.Clip(annotations[v1alpha1.MatchedReservationUIDAnnotation], maxText))
	}
	if m == (Annotations{}) {
		return nil
	}
	kept := m // m itself is then no allocation for the many pods that have none of them
	return &kept
}

// parseMatched reads the value of the matched-reservation annotation: namespace/name/slot.
func parseMatched(value string) (ref ledger.SlotRef, ok bool) {
	if value == "" {
		return ledger.SlotRef{}, false
	}
	parts := strings.SplitN(value, "/", 4)
	unnamed := func(part string) bool { return part == "" || len(part) > maxText }
	if len(parts) != 3 || slices.ContainsFunc(parts, unnamed) {
		return ledger.SlotRef{}, false
	}
	return ledger.SlotRef{Namespace: parts[0], Name: parts[1], Slot: parts[2]}, true
}

// controllerOf returns what controls a pod. The ReplicaSets of a Deployment are named after it and the hash of their
// pod template, which their pods carry as a label (kubernetes pkg/controller/deployment, getNewReplicaSet): a pod of
// such a ReplicaSet belongs to the Deployment, whose other ReplicaSets' pods are its equals.
func controllerOf(pod *v1.Pod) Controller {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return Controller{}
	}
	c := Controller{Kind: kinds.Clip(owner.Kind, maxText), Name: kinds.Clip(owner.Name, maxText)}
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" && owner.Kind == "ReplicaSet" {
		if deployment, ok := strings.CutSuffix(owner.Name, "-"+hash); ok && deployment != "" {
			return Controller{Kind: "Deployment", Name: deployment}
		}
	}
	return c
}

// Index returns the pod's reservation index, or "".
func (i *Pod) Index() string { return ptr.Deref(i.Annotations, Annotations{}).Index }

// Matched returns the slot the pod says it was bound with, or an empty one.
func (i *Pod) Matched() ledger.SlotRef { return ptr.Deref(i.Annotations, Annotations{}).Matched }

// matchedUID returns the UID of the reservation of that slot, or "".
func (i *Pod) matchedUID() types.UID { return ptr.Deref(i.Annotations, Annotations{}).MatchedUID }

// Origin is what a pod's annotations say of the reservation it is bound with.
type Origin struct {
	// UID is that of its object; empty where there is none yet, or it is not known.
	UID types.UID
	// Godel: its users expect the annotation of the Gödel scheduler.
	Godel bool
}

// Matching returns the annotations that say which slot the pod is bound with; an empty slot means none. They are
// written with the binding. A pod that was created with such an annotation, as a copy of another one, and uses no slot
// loses its value: after a restart it would be taken for true. origin returns the Origin of a reservation by its name.
func (i *Pod) Matching(slot ledger.SlotRef, origin func(namespace, name string) Origin) map[string]string {
	if slot == (ledger.SlotRef{}) {
		if i.Matched() == (ledger.SlotRef{}) {
			return nil
		}
		return map[string]string{v1alpha1.MatchedReservationAnnotation: ""}
	}
	annotations := map[string]string{v1alpha1.MatchedReservationAnnotation: slot.String()}
	from := origin(slot.Namespace, slot.Name)
	if from.UID != "" || i.matchedUID() != "" {
		annotations[v1alpha1.MatchedReservationUIDAnnotation] = string(from.UID)
	}
	if (i.Annotations != nil && i.Annotations.Godel) || from.Godel {
		annotations[v1alpha1.GodelMatchedReservationAnnotation] = slot.Namespace + "/" + slot.Name + "-placeholder"
	}
	return annotations
}
