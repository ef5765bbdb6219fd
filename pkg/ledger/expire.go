package ledger

import "time"

// Expire releases the reservations and ends the holds whose deadline is not
// after now and returns how many there were. A hold waits for a bind in flight
// that uses it.
func (l *Ledger) Expire(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expire(now)
}

func (l *Ledger) expire(now time.Time) int {
	count := 0
	for d := l.deadlines.first(); d != nil && d.at <= now.UnixNano(); d = l.deadlines.first() {
		switch h := d.hold; {
		case h == nil:
			l.release(d.claim, ClaimExpired)
		case h.binding():
			h.overdue = true
			l.deadlines.remove(d)
			continue
		default:
			l.endHold(h, HoldExpired, PodRef{})
		}
		count++
	}
	return count
}

// NextDeadline returns when the next reservation or hold expires, and false
// where none does.
func (l *Ledger) NextDeadline() (time.Time, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	d := l.deadlines.first()
	if d == nil {
		return time.Time{}, false
	}
	return d.time(), true
}
