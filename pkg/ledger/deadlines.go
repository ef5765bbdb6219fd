package ledger

import "container/heap"

// deadlineHeap orders Reserved claims by deadline, soonest first. Each claim
// knows its place, so a claim that is bound leaves the heap at once.
type deadlineHeap struct{ claims claimHeap }

func (h *deadlineHeap) set(c *claim, deadline int64) {
	c.deadline = deadline
	if c.heapIndex >= 0 {
		heap.Fix(&h.claims, int(c.heapIndex))
		return
	}
	heap.Push(&h.claims, c)
}

func (h *deadlineHeap) remove(c *claim) { heap.Remove(&h.claims, int(c.heapIndex)) }

// first returns the claim with the soonest deadline, or nil.
func (h *deadlineHeap) first() *claim {
	if len(h.claims) == 0 {
		return nil
	}
	return h.claims[0]
}

// claimHeap implements container/heap.
type claimHeap []*claim

func (h claimHeap) Len() int           { return len(h) }
func (h claimHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }

func (h claimHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = int32(i), int32(j)
}

// Push implements heap.Interface.
func (h *claimHeap) Push(x any) {
	c := x.(*claim)
	c.heapIndex = int32(len(*h))
	*h = append(*h, c)
}

// Pop implements heap.Interface.
func (h *claimHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	c.heapIndex = -1
	return c
}
