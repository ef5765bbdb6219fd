package extendeddevices

import (
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// tellClaim writes an Event on a claim whose phase has changed, and a line in the log.
func (c *Controller) tellClaim(claim *v1alpha1.ExtendedResourceClaim, former v1alpha1.ExtendedResourceClaimPhase) {
	phase := claim.Status.Phase
	if phase == former {
		return
	}
	kind, reason := v1.EventTypeNormal, string(phase)
	note := claim.Status.Conditions[0].Message
	switch phase {
	case v1alpha1.ExtendedResourceClaimBound:
		if len(claim.Status.ExtendedResources) == 0 {
			kind, reason = v1.EventTypeWarning, reasonNotGiven
			break
		}
		note = fmt.Sprintf("pod %s has %s on node %s", claim.Status.PodRef.Name,
			strings.Join(claim.Status.ExtendedResources, ", "), claim.Status.NodeName)
	case v1alpha1.ExtendedResourceClaimLost:
		kind, reason = v1.EventTypeWarning, reasonLost
	default:
		if former == "" && claim.Status.Conditions[0].Reason != reasonInvalid {
			return // it is new
		}
		if claim.Status.Conditions[0].Reason == reasonInvalid {
			kind, reason = v1.EventTypeWarning, reasonInvalid
			break
		}
		reason, note = "Released", "the pod that had the devices is gone"
	}
	c.event(&v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ExtendedResourceClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}, kind, reason, note)
}

// tellDevice writes an Event on a device that has gone offline, and a line in the log.
func (c *Controller) tellDevice(d *v1alpha1.ExtendedResource) {
	if d.Status.Phase != v1alpha1.ExtendedResourceOffline || !recent(d.Status.Conditions[0].LastTransitionTime.Time) {
		return
	}
	c.event(&v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ExtendedResource",
		Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
	}, v1.EventTypeWarning, d.Status.Conditions[0].Reason, d.Status.Conditions[0].Message)
}

// recent reports whether a condition has just changed: times have whole seconds.
func recent(transition time.Time) bool { return time.Since(transition) < 2*time.Second }

func (c *Controller) event(on *v1.ObjectReference, kind, reason, note string) {
	c.Log.WithFields(logrus.Fields{
		"kind": on.Kind, "object": object{namespace: on.Namespace, name: on.Name}.String(), "reason": reason, "note": note,
	}).Info("device")
	c.events.Tell(on, kind, reason, "Project", note)
}
