package reservations

import (
	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// tell writes a Normal Event on the object and a line in the log.
func (c *Controller) tell(r *record, reason, action, note string) {
	c.event(r, v1.EventTypeNormal, reason, action, note)
}

// warn writes a Warning Event on the object and a line in the log.
func (c *Controller) warn(r *record, reason, action, note string) {
	c.event(r, v1.EventTypeWarning, reason, action, note)
}

func (c *Controller) event(r *record, kind, reason, action, note string) {
	c.Log.WithFields(logrus.Fields{
		"reservation": r.key().String(), "scheduler": r.rsv.Spec.SchedulerName, "node": r.status.NodeName,
		"slots": len(r.slots), "reason": reason, "note": note,
	}).Info("reservation")
	object := &v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation",
		Namespace: r.rsv.Namespace, Name: r.rsv.Name, UID: r.rsv.UID, ResourceVersion: r.rsv.ResourceVersion,
	}
	c.events.Tell(object, kind, reason, action, note)
}

// ended tells of the end of a reservation.
func (c *Controller) ended(r *record, why cause) {
	switch r.status.Phase {
	case v1alpha1.ReservationFailed, v1alpha1.ReservationPreempted:
		c.warn(r, why.reason, "End", why.message)
	default:
		c.tell(r, why.reason, "End", why.message)
	}
}
