package waiting

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// preemptor is what is known of a pod that fits a node only if preemptible slots end, as far as filter calls could
// tell.
type preemptor struct {
	looks   int // filter calls in a row that found no other capacity
	allowed bool
}

// CountLook counts a filter call that found no capacity for a pod but that of preemptible slots, and returns how many
// there have been since one found other capacity.
func (w *Pods) CountLook(pod ledger.PodRef) (looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.record(pod).preemptor
	p.looks++
	return p.looks
}

// AllowPreempting lets the bind of a pod that was looked at end preemptible slots.
func (w *Pods) AllowPreempting(pod ledger.PodRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(pod).preemptor.allowed = true
}

// ForbidPreempting takes that back: the pod fits without, or it is being bound. Its looks count anew.
func (w *Pods) ForbidPreempting(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		r.preemptor = preemptor{}
		w.tidy(r)
	}
}

// MayPreempt reports whether the bind of a pod may end preemptible slots.
func (w *Pods) MayPreempt(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.byUID[pod]
	return r != nil && r.preemptor.allowed
}
