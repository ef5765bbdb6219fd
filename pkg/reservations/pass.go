package reservations

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// A pass over the pending reservations begins at most every passPause. Passes take no more than a fifth of the time,
// unless one takes long: in a busy cluster capacity is freed all the time. One namespace must not keep others waiting:
// it may have thousands of objects, and for each it may take a second to find no place.
const (
	passPause, passRest, passRestMost = 100 * time.Millisecond, 4, 3 * time.Second
	// passAgain is after how long a pass begins although no event says that capacity was freed: an allocation may get
	// smaller without an event.
	passAgain = 10 * time.Second
	// turn is how long reservations of one namespace are tried in a pass. The attempt that goes on then ends. Those that
	// it missed are tried in the next passes, before any other of the namespace.
	turn = 50 * time.Millisecond
	// attemptMost is how long nodes are chosen for one reservation.
	attemptMost = 5 * time.Second
)

// placeLoop places pending reservations when something may fit that did not.
func (c *Controller) placeLoop(ctx context.Context) {
	if c.Ready.Wait(ctx) != nil || c.MayDecide(ctx) != nil {
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
		if !informer.Pause(ctx, min(max(passPause, passRest*c.now().Sub(begun)), passRestMost)) {
			return
		}
	}
}

// pass tries the pending reservations, each once: the highest priority first, among equals the oldest. One is tried
// again when something was freed since, or passAgain is over. It returns after how long the next pass is to begin: at
// once where some reservations had no turn.
func (c *Controller) pass(ctx context.Context) time.Duration {
	waiting, next := c.attempts()
	if len(waiting) == 0 {
		return next
	}
	free, used := c.Ledger.Survey(), map[string]time.Duration{}
	for _, a := range waiting {
		if ctx.Err() != nil {
			return passAgain
		}
		if used[a.rsv.Namespace] >= turn {
			next = 0
			c.miss(a)
			continue
		}
		begun := c.now()
		c.place(a, free)
		used[a.rsv.Namespace] += c.now().Sub(begun)
	}
	return next
}

// miss notes that a reservation had no turn in a pass.
func (c *Controller) miss(a attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.missed = true
}

// attempt is one try to place a reservation.
type attempt struct {
	*record
	rsv      *v1alpha1.Reservation // the record's when the attempt began
	priority int32
	asOf     uint64          // what freed was when the pass began
	until    time.Time       // nodes are chosen, by the steady clock
	back     map[string]bool // the slots that were given back before it began
}

// attempts returns the pending reservations whose turn it is, in order, and after how long others are due.
func (c *Controller) attempts() (list []attempt, next time.Duration) {
	next = passAgain
	freed := c.freed.Load()
	c.mu.Lock()
	now, due, behind := c.now(), []*record{}, map[string]bool{}
	for _, r := range c.records {
		switch age := now.Sub(r.tried); {
		case !r.pending():
		case r.freed != freed, age >= passAgain:
			due = append(due, r)
			behind[r.rsv.Namespace] = behind[r.rsv.Namespace] || r.missed
		default:
			next = min(next, passAgain-age)
		}
	}
	for _, r := range due {
		if behind[r.rsv.Namespace] && !r.missed {
			next = 0
		} else {
			list = append(list, attempt{record: r, rsv: r.rsv, asOf: freed})
		}
	}
	c.mu.Unlock()
	for i := range list {
		list[i].priority = c.priority(list[i].rsv)
	}
	slices.SortFunc(list, func(a, b attempt) int {
		return cmp.Or(
			cmp.Compare(b.priority, a.priority), a.rsv.CreationTimestamp.Compare(b.rsv.CreationTimestamp.Time),
			cmp.Compare(a.rsv.Namespace, b.rsv.Namespace), cmp.Compare(a.rsv.Name, b.rsv.Name))
	})
	return list, next
}
