package extendeddevices

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Reasons of the conditions Bound and Online.
const (
	reasonBound       = "DevicesBound"
	reasonUnclaimed   = "NoPodBound"
	reasonInvalid     = "InvalidSpec"
	reasonLost        = "DeviceDeleted"
	reasonNotGiven    = "NoDevicesGiven"
	reasonNodeReady   = "NodeExists"
	reasonNoNode      = "NodeGone"
	reasonSameDevice  = "SameDevice"
	reasonUnscheduled = "Unschedulable"
)

// maxMessage is far below what the API takes; a message is for people.
const maxMessage = 1000

// condition makes the only condition of a status. The time of the last transition is kept where the
// condition was the same before.
func condition(former []metav1.Condition, now time.Time, next metav1.Condition) []metav1.Condition {
	next.Message = informer.Clip(next.Message, maxMessage)
	next.LastTransitionTime = metav1.Time{Time: now.Truncate(time.Second)}
	for i := range former {
		if former[i].Type == next.Type && former[i].Status == next.Status {
			next.LastTransitionTime = former[i].LastTransitionTime
		}
	}
	return []metav1.Condition{next}
}

// claimFacts is what the status of a claim is made from.
type claimFacts struct {
	use   *use     // of a bound pod, or nil
	names []string // of the objects of its devices that there are
	gone  []string // the IDs of its devices that have no object any more
}

// projectClaim returns the status a claim has to have.
func projectClaim(claim *claim, facts *claimFacts, now time.Time) v1alpha1.ExtendedResourceClaimStatus {
	obj := claim.obj
	status := v1alpha1.ExtendedResourceClaimStatus{
		Phase: v1alpha1.ExtendedResourceClaimPending, ObservedGeneration: obj.Generation,
	}
	next := metav1.Condition{
		Type: v1alpha1.ConditionBound, Status: metav1.ConditionFalse, ObservedGeneration: obj.Generation,
		Reason: reasonUnclaimed, Message: "no pod that names the claim is bound",
	}
	switch {
	case facts.use != nil:
		u := facts.use
		status.NodeName = u.Node
		status.PodRef = &v1alpha1.PodReference{Name: u.Pod.Name, UID: u.Pod.UID}
		status.ExtendedResources = slices.Sorted(slices.Values(facts.names))
		if len(facts.gone) > 0 {
			status.Phase, next.Reason = v1alpha1.ExtendedResourceClaimLost, reasonLost
			next.Message = fmt.Sprintf("node %s has no object any more for device %s, which pod %s was given",
				u.Node, strings.Join(facts.gone, ", "), u.Pod.Name)
			break
		}
		status.Phase = v1alpha1.ExtendedResourceClaimBound
		if len(facts.names) == 0 {
			next.Reason = reasonNotGiven
			next.Message = fmt.Sprintf("pod %s is bound and has no devices in its annotation %s: its scheduler did not ask "+
				"GlobalReserve, or somebody changed it",
				u.Pod.Name, v1alpha1.ExtendedResourcesAnnotation)
			break
		}
		next.Status, next.Reason = metav1.ConditionTrue, reasonBound
		next.Message = fmt.Sprintf("pod %s has the devices", u.Pod.Name)
	case claim.err != nil:
		next.Reason, next.Message = reasonInvalid, claim.err.Error()
	}
	status.Conditions = condition(obj.Status.Conditions, now, next)
	return status
}

// deviceFacts is what the status of a device is made from.
type deviceFacts struct {
	nodeExists bool
	same       string // the object that stands for the device instead, or ""
	use        *use   // of a bound pod, or nil
}

// projectDevice returns the status a device has to have.
func projectDevice(d *v1alpha1.ExtendedResource, facts *deviceFacts, now time.Time) v1alpha1.ExtendedResourceStatus {
	status := v1alpha1.ExtendedResourceStatus{Phase: v1alpha1.ExtendedResourceAvailable, ObservedGeneration: d.Generation}
	next := metav1.Condition{
		Type: v1alpha1.ConditionOnline, Status: metav1.ConditionTrue, ObservedGeneration: d.Generation,
		Reason: reasonNodeReady, Message: "node " + d.Spec.NodeName + " exists",
	}
	if d.Spec.Unschedulable {
		next.Reason, next.Message = reasonUnscheduled, "spec.unschedulable keeps the device from further claims"
	}
	if u := facts.use; u != nil && facts.same == "" {
		status.Phase = v1alpha1.ExtendedResourceBound
		if claim := u.given.Claim; claim.Name != "" {
			status.ClaimRef = &v1alpha1.ExtendedResourceClaimReference{
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			}
		}
	}
	switch {
	case facts.same != "":
		status.Phase, next.Status, next.Reason = v1alpha1.ExtendedResourceOffline, metav1.ConditionFalse, reasonSameDevice
		next.Message = fmt.Sprintf("object %s is the same device (node, resourceName and deviceID): delete one of the two",
			facts.same)
	case !facts.nodeExists:
		status.Phase, next.Status, next.Reason = v1alpha1.ExtendedResourceOffline, metav1.ConditionFalse, reasonNoNode
		next.Message = fmt.Sprintf("there is no node %s", d.Spec.NodeName)
	}
	status.Conditions = condition(d.Status.Conditions, now, next)
	return status
}
