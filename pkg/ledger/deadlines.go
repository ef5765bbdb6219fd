package ledger

import (
	"container/heap"
	"math"
	"time"
)

// never is the deadline of what does not expire.
const never = math.MaxInt64

// nanos returns a moment in Unix nanoseconds, by the caller's clock. A moment that is too far away for that becomes the
// farthest that there is.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	default:
		return t.UnixNano()
	}
}

// deadlineOf returns a deadline in Unix nanoseconds; zero means never.
func deadlineOf(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return nanos(t)
}

// moment is the reverse of deadlineOf.
func moment(nanos int64) time.Time {
	if nanos == never {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// schedule lets a slot expire at its deadline, if it has one.
func (l *account) schedule(e *entry) {
	switch {
	case e.deadline == never:
		l.unschedule(e)
	case e.due >= 0:
		heap.Fix(&l.deadlines, int(e.due))
	default:
		heap.Push(&l.deadlines, e)
	}
}

// unschedule keeps a slot from expiring.
func (l *account) unschedule(e *entry) {
	if e.due >= 0 {
		heap.Remove(&l.deadlines, int(e.due))
	}
}

// deadlines orders what expires, soonest first, by container/heap. Each entry knows its
// place, so that what is bound, or given back, leaves the heap at once.
type deadlines []*entry

func (h deadlines) Len() int { return len(h) }

// Less puts slots in memory before others of the same moment, so that the event of
// one that is part of another still says so when both expire.
func (h deadlines) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.deadline < b.deadline || (a.deadline == b.deadline && a.inMemory() && !b.inMemory())
}

func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].due, h[j].due = int32(i), int32(j) //nolint:gosec // there are fewer entries
}

// Push implements heap.Interface.
func (h *deadlines) Push(x any) {
	e := x.(*entry)
	e.due = int32(len(*h)) //nolint:gosec // as above
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *deadlines) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.due = -1
	return e
}
