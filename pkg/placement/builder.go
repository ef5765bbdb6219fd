// Package placement turns a pod into the question to the ledger: what the pod requests, which slots of
// reservations it may use, and which devices its claims ask for. Every integration path asks through it, so that all
// ask the same. The texts for nodes that refuse a pod are here too, so that all schedulers receive the same.
//
//   - builder.go   the question
//   - matcher.go   which reservations a pod may use
//   - refusals.go  the constant texts
//
// The packages that watch Reservation objects feed the Matcher (Set, Remove). It only knows what the objects ask for:
// by the index or the gang that both name, by the controller that both have, or by the reservation's label selector,
// and never across namespaces. The ledger knows whether a slot still keeps capacity, and whether it is enough. Slots
// that name their pod are left out, because the ledger finds those itself.
//
// What may be touched: all that a decision must know of a pod is added here, once. The package asks nothing and decides
// nothing. Texts in refusals.go never change with the cluster's state.
package placement

import (
	"reflect"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Builder makes questions. All fields are required. It is safe for concurrent use.
type Builder struct {
	// Reader reads pods, with the columns of the ledger that is asked.
	Reader cluster.Reader
	// Matcher knows which reservations a pod may use.
	Matcher *Matcher
	// Devices returns what the device claims that a pod names ask for, nil for a pod that names none.
	Devices func(pod *cluster.Pod) *ledger.DeviceRequest
}

// For returns the question for capacity for a pod on a node, or on any node where node is empty. A
// resource that no node offered when the pod was read may be offered by now. Devices that the pod claims count, too.
func (b *Builder) For(pod *cluster.Pod, node string) ledger.Placement {
	p := b.WithoutSlots(pod, node)
	p.Slots = b.Matcher.Candidates(pod)
	return p
}

// WithoutSlots is For without the slots that the pod may use, which take the longest to find.
func (b *Builder) WithoutSlots(pod *cluster.Pod, node string) ledger.Placement {
	p := pod.Placement(node)
	p.Devices = b.Devices(pod)
	p.Request = p.Devices.Counted(b.Reader.Table, p.Request.Relisted(b.Reader.Table))
	return p
}

// Same reports whether the same is asked for two states of a pod, whatever their versions. Any difference counts
// that a decision might have looked at.
func (b *Builder) Same(pod, other *cluster.Pod) bool {
	x, y := *pod, *other
	x.ResourceVersion, y.ResourceVersion, x.Scheduling, y.Scheduling = 0, 0, 0, 0
	x.Nominated, y.Nominated = "", ""
	x.Request, y.Request = pod.Request.Relisted(b.Reader.Table), other.Request.Relisted(b.Reader.Table)
	if x.Claiming != nil && y.Claiming != nil {
		x.Claiming, y.Claiming = x.Claiming.Relisted(b.Reader.Table), y.Claiming.Relisted(b.Reader.Table)
	}
	return reflect.DeepEqual(&x, &y)
}

// Observation returns what the ledger records of a bound pod.
func (b *Builder) Observation(pod *cluster.Pod) ledger.PodObservation {
	o := pod.Observation()
	o.Devices = b.Devices(pod)
	return o
}
