package binder

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// matched returns the annotations that tell which hold a pod is bound with. A
// pod that was created with such an annotation, as a copy of another one, and
// uses no hold loses its value: after a restart it would be taken for true.
func (b *Binder) matched(info *podinfo.Info, hold ledger.HoldRef) map[string]string {
	if hold == (ledger.HoldRef{}) {
		if info.Matched() == (ledger.HoldRef{}) {
			return nil
		}
		return map[string]string{v1alpha1.MatchedReservationAnnotation: ""}
	}
	annotations := map[string]string{v1alpha1.MatchedReservationAnnotation: hold.String()}
	if (info.Marks != nil && info.Marks.Godel) || b.o.Reservations.Godel(hold.Namespace, hold.Name) {
		annotations[v1alpha1.GodelMatchedReservationAnnotation] = hold.Namespace + "/" + hold.Name + "-placeholder"
	}
	return annotations
}

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
