package reservations

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/follow"
)

// Pending reservations are gone through at most every passPause, and for no more than a fifth of the time, unless a pass
// takes long: in a busy cluster capacity is freed all the time. What one namespace asks for must not keep others waiting:
// it may be thousands of objects, each of which takes a second to find no place for.
const (
	passPause, passRest, passRestMost = 100 * time.Millisecond, 4, time.Second
	// passAgain is after how long they are gone through if nothing says that capacity was freed: an allocation may get
	// smaller without an event of that.
	passAgain = 10 * time.Second
	// turn is how long reservations of one namespace are tried in a pass. The attempt that goes on then ends; the others
	// come first in the next pass.
	turn = 50 * time.Millisecond
	// attemptRest is how many times as long as an attempt took a reservation waits for its next one; no longer than
	// passAgain.
	attemptRest = 50
	// attemptMost is how long nodes are chosen for one reservation.
	attemptMost = 5 * time.Second
)

// placeLoop places pending reservations when something may fit that did not.
func (c *Controller) placeLoop(ctx context.Context) {
	if c.ready.Wait(ctx) != nil || c.MayDecide(ctx) != nil {
		return
	}
	for next := passAgain; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-time.After(next):
		}
		begun := c.now()
		next = c.pass(ctx)
		if !follow.Pause(ctx, min(max(passPause, passRest*c.now().Sub(begun)), passRestMost)) {
			return
		}
	}
}

// pass tries the pending reservations, each once: the highest priority first. It returns when to go through them next,
// for the sake of those whose turn it was not.
func (c *Controller) pass(ctx context.Context) (next time.Duration) {
	next = passAgain
	waiting := c.attempts()
	if len(waiting) == 0 {
		return next
	}
	free, used := c.Ledger.Survey(), map[string]time.Duration{}
	for _, a := range waiting {
		begun, namespace := c.now(), a.rsv.Namespace
		switch rest := a.notBefore.Sub(begun); {
		case ctx.Err() != nil:
			return next
		case rest > 0:
			next = min(next, rest)
		case used[namespace] >= turn:
			next = 0
			c.passOver(a)
		default:
			c.place(a, free)
			used[namespace] += c.now().Sub(begun)
		}
	}
	return next
}

// attempt is one try to place a reservation.
type attempt struct {
	*record
	rsv   *v1alpha1.Reservation // the record's when the attempt began
	begun time.Time             // by the steady clock
	// What follows is the record's from when the pass began.
	priority   int32
	passedOver int
	notBefore  time.Time
}

// attempts returns the pending reservations in order: the highest priority first, among equals those that were passed
// over most often, and then the oldest.
func (c *Controller) attempts() []attempt {
	c.mu.Lock()
	var list []attempt
	for _, r := range c.records {
		if r.pending() {
			list = append(list, attempt{record: r, rsv: r.rsv, passedOver: r.passedOver, notBefore: r.notBefore})
		}
	}
	c.mu.Unlock()
	for i := range list {
		list[i].priority = c.priority(list[i].rsv)
	}
	slices.SortFunc(list, func(a, b attempt) int {
		return cmp.Or(
			cmp.Compare(b.priority, a.priority), cmp.Compare(b.passedOver, a.passedOver),
			a.rsv.CreationTimestamp.Compare(b.rsv.CreationTimestamp.Time),
			cmp.Compare(a.rsv.Namespace, b.rsv.Namespace), cmp.Compare(a.rsv.Name, b.rsv.Name))
	})
	return list
}

// passOver leaves a reservation to the next pass.
func (c *Controller) passOver(a attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.record.passedOver++
}

// rest returns until when the reservation waits after an attempt that has come to nothing by now.
func (a *attempt) rest(now time.Time) time.Time {
	return now.Add(min(attemptRest*now.Sub(a.begun), passAgain))
}
