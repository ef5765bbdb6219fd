package ledgertest

import (
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// World draws random things that happen to a ledger. Its pools are small, so
// that pods and nodes meet again and again.
type World struct {
	Table *resources.Table
	Now   time.Time

	incarnation map[string]int // of the pod of each name, counted up as pods are made anew
}

// NewWorld returns a world without any pod.
func NewWorld(table *resources.Table) *World {
	return &World{Table: table, Now: time.Unix(1000, 0), incarnation: map[string]int{}}
}

var (
	podNames   = []string{"a", "b", "c", "d", "e", "f"}
	nodeNames  = []string{"n1", "n2", "n3"}
	schedulers = []string{"", "s1", "s2"}
	hostIPs    = []string{"0.0.0.0", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"}
)

// extended are resources beyond the core ones. They are more than a row has
// room for at first, so that rows have to grow.
var extended = func() (names []v1.ResourceName) {
	for k := range 12 {
		names = append(names, v1.ResourceName(fmt.Sprintf("example.com/r%d", k)))
	}
	return names
}()

// Node draws a node name; now and then one nobody has heard of.
func (w *World) Node(t *rapid.T) string {
	if rapid.IntRange(0, 30).Draw(t, "unknown node") == 30 {
		return "nowhere"
	}
	return rapid.SampledFrom(nodeNames).Draw(t, "node")
}

// Pod draws a pod: mostly the present one of a name, sometimes the one before
// it, or the next one, or a pod that has no UID yet.
func (w *World) Pod(t *rapid.T) ledger.PodRef {
	name := rapid.SampledFrom(podNames).Draw(t, "pod")
	ref := ledger.PodRef{Namespace: "ns", Name: name}
	switch turn := w.incarnation[name]; rapid.IntRange(0, 9).Draw(t, "which") {
	case 8, 9:
		return ref
	case 6:
		ref.UID = types.UID(fmt.Sprintf("%s-%d", name, turn-1))
	case 7:
		ref.UID = types.UID(fmt.Sprintf("%s-%d", name, turn+1))
	default:
		ref.UID = types.UID(fmt.Sprintf("%s-%d", name, turn))
	}
	return ref
}

// ExistingPod draws a pod with a UID.
func (w *World) ExistingPod(t *rapid.T) ledger.PodRef {
	ref := w.Pod(t)
	if ref.UID == "" {
		ref.UID = types.UID(fmt.Sprintf("%s-%d", ref.Name, w.incarnation[ref.Name]))
	}
	return ref
}

// Recreate lets the pod of a name be made anew from now on.
func (w *World) Recreate(t *rapid.T) {
	w.incarnation[rapid.SampledFrom(podNames).Draw(t, "pod")]++
}

// Request draws a request. Decisions may ask for resources that nothing has
// named so far; what is observed gives them a column.
func (w *World) Request(t *rapid.T, observed bool) *resources.Request {
	r := &resources.Request{
		Amounts:                []resources.Amount{{Column: resources.Pods, Value: 1}},
		ToleratesUnschedulable: rapid.IntRange(0, 4).Draw(t, "tolerates") == 4,
	}
	add := func(name v1.ResourceName, value int64) {
		col, known := w.Table.Lookup(name)
		if !known && observed {
			col, known = w.Table.Intern(name)
		}
		switch {
		case value == 0:
		case known:
			r.Amounts = append(r.Amounts, resources.Amount{Column: col, Value: value})
		default:
			r.Unlisted = append(r.Unlisted, resources.NamedAmount{Name: name, Value: value})
		}
	}
	add(v1.ResourceCPU, w.value(t, "cpu", 4))
	add(v1.ResourceMemory, w.value(t, "memory", 4))
	if rapid.IntRange(0, 3).Draw(t, "extended") == 3 {
		add(rapid.SampledFrom(extended).Draw(t, "resource"), w.value(t, "amount", 3))
	}
	slices.SortFunc(r.Amounts, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	for range max(0, rapid.IntRange(0, 8).Draw(t, "ports")-6) {
		r.Ports = append(r.Ports, w.port(t))
	}
	return r
}

func (w *World) port(t *rapid.T) resources.HostPort {
	return resources.HostPort{
		PortKey: resources.PortKey{
			Protocol: rapid.SampledFrom([]v1.Protocol{v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP}).Draw(t, "protocol"),
			Port:     int32(rapid.IntRange(80, 81).Draw(t, "port")),
		},
		IP: rapid.SampledFrom(hostIPs).Draw(t, "ip"),
	}
}

// value draws an amount; rarely one that makes sums overflow.
func (w *World) value(t *rapid.T, label string, most int64) int64 {
	switch rapid.IntRange(0, 60).Draw(t, label+" size") {
	case 60:
		return math.MaxInt64
	case 59:
		return math.MaxInt64 - 2
	}
	return rapid.Int64Range(0, most).Draw(t, label)
}

// NodeObservation draws what a node may offer.
func (w *World) NodeObservation(t *rapid.T) ledger.NodeObservation {
	o := ledger.NodeObservation{
		Name:          rapid.SampledFrom(nodeNames).Draw(t, "node"),
		UID:           types.UID(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid")),
		Unschedulable: rapid.IntRange(0, 6).Draw(t, "cordoned") == 6,
	}
	offer := func(name v1.ResourceName, value int64) {
		if col, _ := w.Table.Intern(name); value > 0 {
			o.Allocatable = append(o.Allocatable, resources.Amount{Column: col, Value: value})
		}
	}
	offer(v1.ResourceCPU, w.value(t, "cpu", 12))
	offer(v1.ResourceMemory, w.value(t, "memory", 12))
	offer(v1.ResourcePods, rapid.Int64Range(0, 6).Draw(t, "pods"))
	if rapid.Bool().Draw(t, "extended") {
		offer(rapid.SampledFrom(extended).Draw(t, "resource"), w.value(t, "amount", 5))
	}
	slices.SortFunc(o.Allocatable, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	return o
}

// PodObservation draws a pod found bound, possibly long ago.
func (w *World) PodObservation(t *rapid.T) ledger.PodObservation {
	return ledger.PodObservation{
		Pod: w.ExistingPod(t), Node: w.Node(t), Request: w.Request(t, true),
		Scheduler:       rapid.SampledFrom(schedulers).Draw(t, "scheduler"),
		Priority:        int32(rapid.IntRange(0, 2).Draw(t, "priority")),
		ResourceVersion: w.Version(t),
	}
}

// Version draws a resource version; 0 is an unknown one.
func (w *World) Version(t *rapid.T) uint64 { return rapid.Uint64Range(0, 8).Draw(t, "version") }

// Placement draws a pod to place somewhere.
func (w *World) Placement(t *rapid.T) ledger.Placement {
	return ledger.Placement{
		Pod: w.Pod(t), Node: w.Node(t), Request: w.Request(t, false),
		Scheduler: rapid.SampledFrom(schedulers).Draw(t, "scheduler"),
		Priority:  int32(rapid.IntRange(0, 2).Draw(t, "priority")),
	}
}

// Placements draws a few of them.
func (w *World) Placements(t *rapid.T) []ledger.Placement {
	var placements []ledger.Placement
	for range rapid.IntRange(0, 4).Draw(t, "placements") {
		placements = append(placements, w.Placement(t))
	}
	return placements
}

// Plan draws a plan of any mode; some are dry runs.
func (w *World) Plan(t *rapid.T) ledger.Plan {
	plan := ledger.Plan{
		Placements: w.Placements(t),
		Mode:       rapid.SampledFrom([]ledger.Mode{ledger.AllOrNothing, ledger.Partial, ""}).Draw(t, "mode"),
		DryRun:     rapid.IntRange(0, 4).Draw(t, "dry run") == 4,
		Without:    w.Victims(t),
	}
	if rapid.IntRange(0, 5).Draw(t, "expires") > 0 {
		plan.Deadline = w.Now.Add(time.Duration(rapid.IntRange(-1, 6).Draw(t, "ttl")) * time.Second)
	}
	return plan
}

// Victims draws the UIDs of some pods.
func (w *World) Victims(t *rapid.T) []types.UID {
	var victims []types.UID
	for range rapid.IntRange(0, 3).Draw(t, "victims") {
		victims = append(victims, w.ExistingPod(t).UID)
	}
	return victims
}

// Pass lets time go on.
func (w *World) Pass(t *rapid.T) {
	w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
}
