package binder

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

type noReservations struct{}

func (noReservations) Candidates(*podinfo.Info) []ledger.HoldRef { return nil }
func (noReservations) Origin(string, string) podinfo.Origin      { return podinfo.Origin{} }

type noDevices struct{}

func (noDevices) Devices(*podinfo.Info) *ledger.DeviceRequest {
	return &ledger.DeviceRequest{Err: "this server does not know of devices"}
}

// Preemptors remembers the pods that fit a node only if preemptible holds ended,
// as far as filter calls could tell. The binds of those that were allowed to, and
// no others, may end such holds.
type Preemptors struct {
	size int

	mu   sync.Mutex // guards pods
	pods map[types.UID]preemptor
}

type preemptor struct {
	looks   int // filter calls in a row that found no other room
	allowed bool
}

// NewPreemptors returns a Preemptors for at most size pods.
func NewPreemptors(size int) *Preemptors {
	return &Preemptors{size: max(size, 1), pods: map[types.UID]preemptor{}}
}

// Looked counts a filter call that found no room for a pod but that of
// preemptible holds, and returns how many there have been since one found other
// room. Where there are too many pods, another one is forgotten: it will be
// filtered again.
func (p *Preemptors) Looked(pod types.UID) int {
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

// Allow lets the bind of a pod that was looked at end holds.
func (p *Preemptors) Allow(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[pod]
	known.allowed = true
	p.pods[pod] = known
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
	return p.pods[pod].allowed
}
