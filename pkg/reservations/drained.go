package reservations

import (
	"cmp"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Drained is what a Reservation keeps for a drain.
type Drained struct {
	Reservation *v1alpha1.Reservation // shared; it must not be changed
	Phase       v1alpha1.ReservationPhase
	// Used is how many slots pods use or have used, Unused how many are kept still.
	Used, Unused int
	// Message is why it does not keep them, where it does not.
	Message string
}

// Drained returns the reservations with the label of a drain, by namespace and name.
func (c *Controller) Drained() []Drained {
	var list []Drained
	c.mu.Lock()
	for _, r := range c.records {
		if r.rsv.Labels[v1alpha1.DrainLabel] == "" {
			continue
		}
		list = append(list, Drained{
			Reservation: r.rsv, Phase: cmp.Or(r.status.Phase, v1alpha1.ReservationPending),
			Used:   r.status.CountSlots(v1alpha1.SlotConsumed),
			Unused: r.status.CountSlots(v1alpha1.SlotReserved), Message: r.condition(v1alpha1.ConditionAvailable).Message,
		})
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b Drained) int {
		return cmp.Or(cmp.Compare(a.Reservation.Namespace, b.Reservation.Namespace),
			cmp.Compare(a.Reservation.Name, b.Reservation.Name))
	})
	return list
}
