package reservations

import (
	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// tell writes an Event on the object, a Warning for bad news, and a line in the log.
func (c *Controller) tell(r *record, reason, action, note string) {
	kind := v1.EventTypeNormal
	if reason == reasonTTLTooLong || r.status.Phase == v1alpha1.ReservationFailed ||
		r.status.Phase == v1alpha1.ReservationPreempted {
		kind = v1.EventTypeWarning
	}
	c.Log.WithFields(logrus.Fields{
		"reservation": r.key().String(), "scheduler": r.rsv.Spec.SchedulerName, "node": r.status.NodeName,
		"slots": len(r.slots), "reason": reason, "note": note,
	}).Info("reservation")
	c.events.Tell(&v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation",
		Namespace: r.rsv.Namespace, Name: r.rsv.Name, UID: r.rsv.UID, ResourceVersion: r.rsv.ResourceVersion,
	}, kind, reason, action, note)
}
