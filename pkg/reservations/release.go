package reservations

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Errors of ReleaseSlots.
var (
	// ErrNoReservation: there is no such object.
	ErrNoReservation = errors.New("there is no such reservation")
	// ErrNoSlot: the object has no slot of that name.
	ErrNoSlot = errors.New("the reservation has no such slot")
)

// ReleaseSlots gives back the room of single slots. The object says so first,
// so that a restart does not hold it again, then the ledger follows. An error
// means that nothing was released. Slots that hold nothing any more are left as
// they are.
func (c *Controller) ReleaseSlots(ctx context.Context, namespace, name string, slots []string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	marked, err := c.mark(key, slots)
	if errors.Is(err, ErrNoReservation) {
		// It may be so new that the watch has not told of it.
		if err = c.fetch(ctx, key); err == nil {
			marked, err = c.mark(key, slots)
		}
	}
	if err != nil || len(marked.names) == 0 {
		return err
	}
	if err := c.writeStatus(ctx, key); err != nil {
		c.unmark(marked)
		return fmt.Errorf("giving back slots of reservation %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[key] == marked.record {
		c.Ledger.ReleaseHolds(namespace, name, marked.names...)
		c.journal.CatchUp()
	}
	return nil
}

// marked are the slots of a record that mark found held.
type marked struct {
	*record
	names []string
}

// mark makes the status say that slots are released that are still held.
func (c *Controller) mark(key types.NamespacedName, slots []string) (marked, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	r := c.records[key]
	if r == nil {
		return marked{}, fmt.Errorf("%w: %s", ErrNoReservation, key)
	}
	m := marked{record: r}
	for _, slot := range slots {
		i, ok := r.byName[slot]
		if !ok {
			return marked{}, fmt.Errorf("%w: %s has no slot %q", ErrNoSlot, key, slot)
		}
		if r.slots[i].held && r.slots[i].end.how == "" {
			m.names = append(m.names, slot)
		}
	}
	for _, slot := range m.names {
		r.slots[r.byName[slot]].releasing = true
	}
	r.project(c.Ledger.ReservationHolds(key.Namespace, key.Name), c.now())
	return m, nil
}

func (c *Controller) unmark(m marked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, slot := range m.names {
		m.slots[m.byName[slot]].releasing = false
	}
	c.queue.Add(m.key())
}

// fetch reads an object that the watch has not told of.
func (c *Controller) fetch(ctx context.Context, key types.NamespacedName) error {
	rsv, err := c.Client.GlobalreserveV1alpha1().Reservations(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNoReservation, key)
	case err != nil:
		return fmt.Errorf("reading reservation %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(rsv)
	return nil
}
