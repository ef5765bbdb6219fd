package arbiter

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// preemptors remembers the pods that fit a node only if preemptible slots ended,
// as far as filter calls could tell. Only binds of pods that were allowed to (allow) may
// end such slots.
type preemptors struct {
	mu   sync.Mutex // held from the read of a pod to its write
	pods *lru.Cache // by UID: preemptor
}

type preemptor struct {
	looks   int // filter calls in a row that found no other capacity
	allowed bool
}

// newPreemptors returns a preemptors for at most size pods. One that is forgotten is
// filtered again.
func newPreemptors(size int) *preemptors { return &preemptors{pods: lru.New(size)} }

// looked counts a filter call that found no capacity for a pod but that of
// preemptible slots, and returns how many there have been since one found other
// capacity.
func (p *preemptors) looked(pod types.UID) int {
	return p.change(pod, func(known *preemptor) { known.looks++ }).looks
}

// allow lets the bind of a pod that was looked at end slots.
func (p *preemptors) allow(pod types.UID) {
	p.change(pod, func(known *preemptor) { known.allowed = true })
}

func (p *preemptors) change(pod types.UID, change func(*preemptor)) preemptor {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known(pod)
	change(&known)
	p.pods.Add(pod, known)
	return known
}

func (p *preemptors) known(pod types.UID) preemptor {
	value, _ := p.pods.Get(pod)
	known, _ := value.(preemptor)
	return known
}

// withdraw forgets a pod: it fits without, or it is being bound, or gone.
func (p *preemptors) withdraw(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods.Remove(pod)
}

// isAllowed reports whether a pod may end preemptible slots.
func (p *preemptors) isAllowed(pod types.UID) bool { return p.known(pod).allowed }
