package controller

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// maxRefusals bounds the memory of refused pods. Beyond it the oldest refusals
// are forgotten: those pods then wait for kube-scheduler's own retry.
const maxRefusals = 100_000

// refusal is a pending pod that filter refused room on some node.
type refusal struct {
	pod *podinfo.Info
	// revision is of the ledger before the refusal was decided: room freed
	// after it is news to the pod.
	revision uint64
	at       time.Time
	promised bool // it is woken whatever is free
}

// refusals remembers the last refusal of every pod that is still pending.
type refusals struct {
	mu    sync.Mutex
	byUID map[types.UID]refusal
}

func (r *refusals) add(n refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byUID[n.pod.Ref.UID]; !known && len(r.byUID) >= maxRefusals {
		r.dropOldest(maxRefusals / 10)
	}
	r.byUID[n.pod.Ref.UID] = n
}

func (r *refusals) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUID, uid)
}

// get returns the last refusal of a pod.
func (r *refusals) get(uid types.UID) (refusal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.byUID[uid]
	return n, ok
}

// all returns all refusals in the order of byPriority.
func (r *refusals) all() []refusal {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.byUID))
	r.mu.Unlock()
	slices.SortFunc(all, byPriority)
	return all
}

// byPriority puts the highest priority first, and among equals the pod that was
// refused longest ago.
func byPriority(a, b refusal) int {
	return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.at.Compare(b.at), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID))
}

func (r *refusals) dropOldest(count int) {
	all := slices.Collect(maps.Values(r.byUID))
	slices.SortFunc(all, func(a, b refusal) int { return a.at.Compare(b.at) })
	for _, n := range all[:count] {
		delete(r.byUID, n.pod.Ref.UID)
	}
}
