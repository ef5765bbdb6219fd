package reservations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// Writes that fail are repeated after retryFirst, then after twice as long each
// time, up to retryMost. One write may take writeTimeout.
const (
	retryFirst   = 100 * time.Millisecond
	retryMost    = 10 * time.Second
	writeTimeout = 10 * time.Second
	// workers is how many writes to the API server are under way at once.
	workers = 4
)

// sync writes or deletes the API server's object, once it is known what it has to be.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	if err := c.Ready.Wait(ctx); err != nil {
		return err
	}
	if err := c.MayDecide(ctx); err != nil {
		return err
	}
	if err := c.writeStatus(ctx, key); err != nil {
		return err
	}
	if rsv := c.due(key); rsv != nil {
		return c.delete(ctx, rsv)
	}
	return nil
}

// due returns an object that has ended and is to be deleted now, nil where it is not.
func (c *Controller) due(key types.NamespacedName) *v1alpha1.Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if r == nil || !r.final() {
		return nil
	}
	if left := r.finishedAt().Add(c.FinishedTTL).Sub(c.wall()); left > 0 && !convert.MadeByServer(r.rsv) {
		c.queue.AddAfter(key, left)
		return nil
	}
	return r.rsv
}

// project brings a record up to the ledger. c.mu is held.
func (c *Controller) project(r *record) {
	if r.status.Phase != v1alpha1.ReservationAvailable {
		return
	}
	kept := map[string]*ledger.SlotView{}
	views := c.Ledger.ReservationSlots(r.rsv.Namespace, r.rsv.Name)
	for i := range views {
		kept[views[i].Ref.Slot] = &views[i]
	}
	c.journal.CatchUp() // whatever is not among the slots has ended before now
	for i := range r.slots {
		if s := &r.slots[i]; s.holds() && kept[r.status.Slots[i].Name] == nil {
			s.end = c.likelyEnd(r, i)
		}
	}
	r.project(kept, c.wall())
	if r.final() {
		c.match(r)
		available := r.condition(v1alpha1.ConditionAvailable)
		c.tell(r, available.Reason, "End", available.Message)
	}
}

// errConflicts is returned when somebody else changed the object each time.
var errConflicts = errors.New("somebody else keeps changing it")

// writeStatus writes the record's status until the object has it. A server that no longer decides does not know what
// the next one has granted, and would write of those objects that they wait: it writes nothing.
func (c *Controller) writeStatus(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client := c.Client.GlobalreserveV1alpha1().Reservations(key.Namespace)
	for range 5 {
		rsv := c.toWrite(key)
		if rsv == nil {
			return nil
		}
		if err := c.Ledger.Ready(); err != nil {
			return err
		}
		written, err := client.UpdateStatus(ctx, rsv, metav1.UpdateOptions{FieldManager: c.Term.Get().Manager()})
		if apierrors.IsConflict(err) {
			written, err = client.Get(ctx, key.Name, metav1.GetOptions{})
		} else if err == nil {
			c.take(written)
			return nil
		}
		switch {
		case apierrors.IsNotFound(err):
			c.gone(key, rsv.UID)
			return nil
		case err != nil:
			return fmt.Errorf("writing the status: %w", err)
		}
		c.take(written)
	}
	return errConflicts
}

// toWrite projects the ledger on the record and returns the object with the status to write. It returns nil where the
// object has it, or is to be deleted at once: the bindings of its pods are the record of what the server made. That a
// slot was given back is written first: no binding says so.
func (c *Controller) toWrite(key types.NamespacedName) *v1alpha1.Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	r := c.records[key]
	if r == nil {
		return nil
	}
	c.project(r)
	phase := r.status.Phase
	known := phase == v1alpha1.ReservationExpired || phase == v1alpha1.ReservationSucceeded &&
		maps.Equal(givenBack(&r.status), givenBack(&r.rsv.Status))
	if convert.MadeByServer(r.rsv) && known || apiequality.Semantic.DeepEqual(&r.status, &r.rsv.Status) {
		return nil
	}
	rsv := *r.rsv // shared: only the status differs
	rsv.Status = *r.status.DeepCopy()
	return &rsv
}

// take observes a state of an object that the API server has returned.
func (c *Controller) take(rsv *v1alpha1.Reservation) {
	rsv.ManagedFields = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.records[keyOf(rsv)]; r != nil && r.rsv.UID == rsv.UID {
		c.observe(rsv)
	}
}

// delete removes an object that is due, if it has not changed since: a delete carries no term, and may arrive when
// another server has found that the object is to stay.
func (c *Controller) delete(ctx context.Context, rsv *v1alpha1.Reservation) error {
	if err := c.Ledger.Ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := c.Client.GlobalreserveV1alpha1().Reservations(rsv.Namespace).Delete(ctx, rsv.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &rsv.UID, ResourceVersion: &rsv.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		c.gone(keyOf(rsv), rsv.UID)
		return nil
	case err != nil:
		return fmt.Errorf("deleting it after its end: %w", err)
	default:
		return nil
	}
}

// gone drops an object that the API server does not have and the watch will not report any more.
func (c *Controller) gone(key types.NamespacedName, uid types.UID) {
	if c.Watch.Get(key.String()) != nil {
		return // the watch is about to report its end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(key, uid)
}
