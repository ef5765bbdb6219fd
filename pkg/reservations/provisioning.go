package reservations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// TellProvisioning records in the status of a reservation that waits for capacity whether nodes were requested for it,
// and what came of it.
func (c *Controller) TellProvisioning(rsv *v1alpha1.Reservation, requested metav1.ConditionStatus, reason,
	message string,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[keyOf(rsv)]
	if r == nil || r.rsv.UID != rsv.UID || !r.pending() {
		return
	}
	former := r.condition(v1alpha1.ConditionProvisioning)
	if former.Status == requested && former.Reason == reason && former.Message == message {
		return
	}
	r.setCondition(v1alpha1.ConditionProvisioning, requested, cause{reason, message}, c.wall())
	if former.Reason != reason {
		c.tell(r, reason, "Provision", message)
	}
	c.queue.Add(r.key())
}

// provisioning reports whether the reservation says that nodes were requested for it.
func (r *record) provisioning() bool {
	return r.condition(v1alpha1.ConditionProvisioning).Status == metav1.ConditionTrue
}

// Settled reports whether the reservation that is named as an owner in a namespace exists, and does not wait for
// capacity any more.
func (c *Controller) Settled(namespace string, owner metav1.OwnerReference) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[types.NamespacedName{Namespace: namespace, Name: owner.Name}]
	return r != nil && r.rsv.UID == owner.UID && !r.pending()
}
