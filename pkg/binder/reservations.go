package binder

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

type noReservations struct{}

func (noReservations) Candidates(*podinfo.Info) []ledger.HoldRef { return nil }
func (noReservations) Godel(string, string) bool                 { return false }

// Preemptors remembers the pods that fit a node only if preemptible holds ended,
// as far as the last filter call could tell. Their binds, and no others, may end
// such holds.
type Preemptors struct {
	size int

	mu   sync.Mutex // guards pods
	pods map[types.UID]struct{}
}

// NewPreemptors returns a Preemptors for at most size pods.
func NewPreemptors(size int) *Preemptors {
	return &Preemptors{size: max(size, 1), pods: map[types.UID]struct{}{}}
}

// Allow remembers a pod. Where there are too many, another one is forgotten: it
// will be refused its bind and filtered again.
func (p *Preemptors) Allow(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.pods {
		if len(p.pods) < p.size {
			break
		}
		delete(p.pods, other)
	}
	p.pods[pod] = struct{}{}
}

// Withdraw forgets a pod: it fits without, or it is being bound, or gone.
func (p *Preemptors) Withdraw(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod)
}

// Allowed reports whether a pod may end preemptible holds.
func (p *Preemptors) Allowed(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.pods[pod]
	return ok
}
