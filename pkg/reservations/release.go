package reservations

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Errors of ReleaseSlots.
var (
	// errNoReservation: there is no such object.
	errNoReservation = errors.New("there is no such reservation")
	// errNoSlot: the object has no slot of that name.
	errNoSlot = errors.New("the reservation has no such slot")
	// errPlacing: the server is looking for capacity, and the outcome is not known yet.
	errPlacing = errors.New("the server looks for capacity for the reservation right now")
)

// placingMost is how long ReleaseSlots waits for slots that are being placed. It looks every placingPause.
const placingMost, placingPause = 2 * time.Second, 10 * time.Millisecond

// ReleaseSlots gives back the capacity of single slots. It writes the object first, so that a restart does not hold the
// capacity again, and then changes the ledger. After an error the ledger has what it had, and the object may not say so
// yet: call again. Slots that keep nothing any more stay as they are. A reservation that waits does not ask for the
// slots any more.
func (c *Controller) ReleaseSlots(ctx context.Context, namespace, name string, slots []string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	r, names, err := c.mark(key, slots)
	if errors.Is(err, errNoReservation) {
		// It may be so new that the watch has not delivered it.
		if err = c.fetch(ctx, key); err == nil {
			r, names, err = c.mark(key, slots)
		}
	}
	for until := c.now().Add(placingMost); errors.Is(err, errPlacing) && c.now().Before(until); {
		if !informer.Pause(ctx, placingPause) {
			break
		}
		r, names, err = c.mark(key, slots)
	}
	if err != nil || len(names) == 0 {
		return err
	}
	err = c.writeStatus(ctx, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		r.releasing(names, false)
		c.queue.Add(key)
		return fmt.Errorf("giving back slots of reservation %s: %w", key, err)
	}
	if c.records[key] == r {
		c.Ledger.ReleaseSlots(namespace, name, names...)
		c.journal.CatchUp()
	}
	return nil
}

// mark makes the status say that slots are released, and returns those that are still held.
func (c *Controller) mark(key types.NamespacedName, slots []string) (r *record, held []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	if r = c.records[key]; r == nil {
		return nil, nil, fmt.Errorf("%w: %s", errNoReservation, key)
	}
	back := givenBack(&r.status)
	for _, slot := range slots {
		if _, ok := r.byName[slot]; !ok {
			return nil, nil, fmt.Errorf("%w: %s has no slot %q", errNoSlot, key, slot)
		}
		if r.toGiveBack(slot) {
			held, back[slot] = append(held, slot), true
		}
	}
	switch {
	case len(held) == 0:
	case !r.pending():
		r.releasing(held, true)
	case r.placing:
		return nil, nil, fmt.Errorf("%w: %s", errPlacing, key)
	default:
		r.giveBack(back)
		r.tried = time.Time{}
		c.wake()
	}
	return r, held, nil
}

func (r *record) releasing(slots []string, releasing bool) {
	for _, slot := range slots {
		r.slots[r.byName[slot]].releasing = releasing
	}
}

// fetch reads an object that the watch has not delivered.
func (c *Controller) fetch(ctx context.Context, key types.NamespacedName) error {
	rsv, err := c.Client.GlobalreserveV1alpha1().Reservations(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s", errNoReservation, key)
	case err != nil:
		return fmt.Errorf("reading reservation %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(rsv)
	return nil
}
