// Package question turns a pod into the question the ledger is asked: what the pod
// requests, which slots of reservations it may use, and which devices its claims
// ask for. Every integration path asks through it, near the ledger (pkg/arbiter)
// and far from it (the scheduler plugin on a mirror), so that all ask the same. What
// schedulers are told of nodes that refuse a pod is here too, so that all hear the same.
//
// What may be touched: whatever a decision must know of a pod is added here, once.
// The package asks nothing and decides nothing.
package question

import (
	"reflect"

	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Maker makes questions. All fields are required. It is safe for concurrent use.
type Maker struct {
	// Reader reads pods, with the columns of the ledger that is asked.
	Reader cluster.Reader
	// Matcher knows which reservations a pod may use.
	Matcher *matcher.Matcher
	// Devices returns what the device claims that a pod names ask for, nil for a pod
	// that names none.
	Devices func(pod *cluster.Pod) *ledger.DeviceRequest
}

// Of asks for capacity for a pod on a node; an empty node leaves open where. A
// resource that no node offered when the pod was read may be offered by now. Devices that the pod claims count, too.
func (m *Maker) Of(pod *cluster.Pod, node string) ledger.Placement {
	p := pod.Placement(node)
	p.Devices = m.Devices(pod)
	p.Request = p.Devices.Counted(m.Reader.Table, pod.Request.Relisted(m.Reader.Table))
	p.Slots = m.Matcher.Candidates(pod)
	return p
}

// Same reports whether the same is asked for two states of a pod, whatever their versions. Any difference counts
// that a decision might have looked at.
func (m *Maker) Same(a, b *cluster.Pod) bool {
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = 0, 0
	x.Request, y.Request = a.Request.Relisted(m.Reader.Table), b.Request.Relisted(m.Reader.Table)
	return reflect.DeepEqual(&x, &y)
}

// Observation is what the ledger is told of a bound pod.
func (m *Maker) Observation(pod *cluster.Pod) ledger.PodObservation {
	o := pod.Observation()
	o.Devices = m.Devices(pod)
	return o
}
