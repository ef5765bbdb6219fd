package ledger

import (
	"container/heap"
	"math"
	"time"
)

// deadline is when a slot expires.
type deadline struct {
	at    int64 // Unix nanoseconds
	index int32 // position in the heap, -1 outside
	entry *entry
}

// nanos returns a moment in Unix nanoseconds: of one too far away for that, the
// farthest there is.
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

// deadlines orders what expires, soonest first. Each entry knows its place, so
// that what is bound, or given back, leaves the heap at once.
type deadlines struct{ heap deadlineHeap }

func (d *deadlines) set(e *deadline, at int64) {
	e.at = at
	if e.index >= 0 {
		heap.Fix(&d.heap, int(e.index))
		return
	}
	heap.Push(&d.heap, e)
}

func (d *deadlines) remove(e *deadline) { heap.Remove(&d.heap, int(e.index)) }

// first returns the soonest deadline, or nil.
func (d *deadlines) first() *deadline {
	if len(d.heap) == 0 {
		return nil
	}
	return d.heap[0]
}

// deadlineHeap implements container/heap.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int { return len(h) }

// Less puts slots in memory before others of the same moment, so that one that is
// part of another still tells so when both expire.
func (h deadlineHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.at < b.at || (a.at == b.at && a.entry.inMemory() && !b.entry.inMemory())
}

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}

// Push implements heap.Interface.
func (h *deadlineHeap) Push(x any) {
	d := x.(*deadline)
	d.index = int32(len(*h))
	*h = append(*h, d)
}

// Pop implements heap.Interface.
func (h *deadlineHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.index = -1
	return d
}
