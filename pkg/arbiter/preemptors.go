package arbiter

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// preemptors remembers the pods that fit a node only if preemptible slots ended,
// as far as filter calls could tell. The binds of those that were allowed to, and
// no others, may end such slots.
type preemptors struct {
	size int

	mu   sync.Mutex // guards pods
	pods map[types.UID]preemptor
}

type preemptor struct {
	looks   int // filter calls in a row that found no other capacity
	allowed bool
}

// newPreemptors returns a preemptors for at most size pods.
func newPreemptors(size int) *preemptors {
	return &preemptors{size: max(size, 1), pods: map[types.UID]preemptor{}}
}

// looked counts a filter call that found no capacity for a pod but that of
// preemptible slots, and returns how many there have been since one found other
// capacity. Where there are too many pods, another one is forgotten: it will be
// filtered again.
func (p *preemptors) looked(pod types.UID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.pods[pod]
	if !ok && len(p.pods) >= p.size {
		for other := range p.pods {
			delete(p.pods, other)
			break
		}
	}
	known.looks++
	p.pods[pod] = known
	return known.looks
}

// allow lets the bind of a pod that was looked at end slots.
func (p *preemptors) allow(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[pod]
	known.allowed = true
	p.pods[pod] = known
}

// withdraw forgets a pod: it fits without, or it is being bound, or gone.
func (p *preemptors) withdraw(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod)
}

// isAllowed reports whether a pod may end preemptible slots.
func (p *preemptors) isAllowed(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[pod].allowed
}
