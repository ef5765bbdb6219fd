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

// World draws random things that happen to a ledger. Its pools are small, so that pods and nodes meet again and again.
type World struct {
	Table *resources.Table
	Now   time.Time
	// Calm keeps to two nodes that exist and to pods that are there.
	Calm bool
	// Devices lets pods and slots claim devices.
	Devices bool
	// Limits lets budgets be limited, and names callers.
	Limits bool
	// DRA lets DRA give devices for resources that pods ask for by count.
	DRA bool

	allocations map[string]*ledger.DeviceRequest // what the pod of each name asked for last
	lastNode    ledger.NodeObservation
	incarnation map[string]int // of the pod of each name, counted up as pods are made anew
}

// NewWorld returns a world without any pod.
func NewWorld(table *resources.Table) *World {
	return &World{
		Table: table, Now: time.Unix(1000, 0), incarnation: map[string]int{},
		allocations: map[string]*ledger.DeviceRequest{},
	}
}

var (
	podNames   = []string{"a", "b", "c", "d", "e", "f"}
	nodeNames  = []string{"n1", "n2", "n3"}
	schedulers = []string{"", "s1", "s2"}
	hostIPs    = []string{"0.0.0.0", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"}
)

// extended are resources beyond the core ones. They are more than a row has
// capacity for at first, so that rows have to grow.
var extended = func() (names []v1.ResourceName) {
	for k := range 12 {
		names = append(names, v1.ResourceName(fmt.Sprintf("example.com/r%d", k)))
	}
	return names
}()

// uniform draws numbers below 64 with equal chances. The numbers of rapid itself
// are mostly small, which would let some things hardly ever happen.
var uniform = rapid.Custom(func(t *rapid.T) int {
	n := 0
	for range 6 {
		n *= 2
		if rapid.Bool().Draw(t, "") {
			n++
		}
	}
	return n
})

// Pick draws a number below n, which is at most 64.
func Pick(t *rapid.T, label string, n int) int { return uniform.Draw(t, label) % n }

// oneOf draws one of some values.
func oneOf[T any](t *rapid.T, label string, values []T) T { return values[Pick(t, label, len(values))] }

// Node draws a node name; now and then one nobody has heard of.
func (w *World) Node(t *rapid.T) string {
	if Pick(t, "unknown node", 31) == 30 {
		return "nowhere"
	}
	if w.Calm {
		return oneOf(t, "node", nodeNames[:2])
	}
	return oneOf(t, "node", nodeNames)
}

// Pod draws a pod: mostly the present one of a name, sometimes the one before
// it, or the next one, or a pod that has no UID yet.
func (w *World) Pod(t *rapid.T) ledger.PodRef {
	name := oneOf(t, "pod", podNames)
	ref := ledger.PodRef{Namespace: "ns", Name: name}
	which := Pick(t, "which", 10)
	if w.Calm && Pick(t, "odd", 4) > 0 {
		which = 0
	}
	turn := w.incarnation[name]
	switch which {
	case 8, 9:
		return ref
	case 6:
		turn--
	case 7:
		turn++
	}
	ref.UID = types.UID(fmt.Sprintf("%s-%d", name, turn))
	return ref
}

// ExistingPod draws a pod with a UID.
func (w *World) ExistingPod(t *rapid.T) ledger.PodRef {
	ref := w.Pod(t)
	if ref.UID == "" {
		ref = w.ExistingPodNamed(t, ref.Name)
	}
	return ref
}

// ExistingPodNamed draws a pod of a name with a UID.
func (w *World) ExistingPodNamed(t *rapid.T, name string) ledger.PodRef {
	turn := w.incarnation[name] - Pick(t, "late", 5)/4
	return ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, turn))}
}

// Next lets the pod of this name be made anew from now on.
func (w *World) Next(name string) { w.incarnation[name]++ }

// Request draws a request. Decisions may ask for resources that nothing has
// named so far; what is observed gives them a column.
func (w *World) Request(t *rapid.T, observed bool) *resources.Request {
	r := &resources.Request{
		Amounts:                []resources.Amount{{Column: resources.Pods, Value: 1}},
		ToleratesUnschedulable: Pick(t, "tolerates", 5) == 4,
	}
	add := func(name v1.ResourceName, value int64) {
		col, known := w.Table.Lookup(name)
		if !known && observed {
			col, known = w.Table.Offer(name)
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
	if Pick(t, "extended", 4) == 3 {
		add(oneOf(t, "resource", extended), w.value(t, "amount", 3))
	}
	if w.Devices && Pick(t, "devices by count", 3) == 2 {
		add(gpu, w.value(t, "gpus", 3))
		add(nic, w.value(t, "nics", 1))
	}
	if w.DRA {
		add(gpu, w.value(t, "gpus", 2))
		if given := Pick(t, "by DRA", 4); given > 2 || (observed && given > 0) {
			r.ByDRA = w.gpus()
		}
	}
	slices.SortFunc(r.Amounts, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	for range max(0, Pick(t, "ports", 9)-6) {
		r.Ports = append(r.Ports, w.port(t))
	}
	return r
}

// gpus is the column of what DRA gives.
func (w *World) gpus() []resources.Column {
	column, _ := w.Table.Offer(gpu)
	return []resources.Column{column}
}

// byDRA draws whether DRA gives what a node does not offer by count, or offers besides.
func (w *World) byDRA(t *rapid.T, o *ledger.NodeObservation) {
	if !w.DRA {
		return
	}
	if Pick(t, "slices", 4) > 0 {
		o.DRA = w.gpus()
	}
	if Pick(t, "by count", 4) == 3 {
		o.Allocatable = append(o.Allocatable, resources.Amount{Column: w.gpus()[0], Value: 3})
	}
}

func (w *World) port(t *rapid.T) resources.HostPort {
	if Pick(t, "term", 4) == 3 {
		return resources.HostPort{
			PortKey: resources.PortKey{Protocol: "AntiAffinity"}, IP: oneOf(t, "app", []string{"ns/app=a", "ns/app=b"}),
			Kept: Pick(t, "kept", 2) == 1,
		}
	}
	return resources.HostPort{
		PortKey: resources.PortKey{
			Protocol: oneOf(t, "protocol", []v1.Protocol{v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP}),
			Port:     int32(80 + Pick(t, "port", 2)),
		},
		IP: oneOf(t, "ip", hostIPs),
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
	return int64(Pick(t, label, int(most)+1))
}

// ListAll gives all resources a column, as what bound pods use has one in a server.
func (w *World) ListAll() {
	for _, name := range append([]v1.ResourceName{gpu, nic}, extended...) {
		w.Table.Use(name)
	}
}

// NodeObservation draws what a node may offer.
func (w *World) NodeObservation(t *rapid.T) ledger.NodeObservation {
	o := ledger.NodeObservation{
		Name:          oneOf(t, "node", nodeNames),
		UID:           types.UID(oneOf(t, "uid", []string{"u1", "u2"})),
		Unschedulable: Pick(t, "cordoned", 7) == 6,
		Labels: oneOf(t, "labels", []map[string]string{
			nil, {"pool": "a"}, {"pool": "b"}, {v1.LabelHostname: "a"}, {v1.LabelHostname: "b", "pool": "b"},
		}),
	}
	offer := func(name v1.ResourceName, value int64) {
		if col, _ := w.Table.Offer(name); value > 0 {
			o.Allocatable = append(o.Allocatable, resources.Amount{Column: col, Value: value})
		}
	}
	offer(v1.ResourceCPU, w.value(t, "cpu", 24))
	offer(v1.ResourceMemory, w.value(t, "memory", 24))
	offer(v1.ResourcePods, int64(Pick(t, "pods", 13)))
	if rapid.Bool().Draw(t, "extended") {
		offer(oneOf(t, "resource", extended), w.value(t, "amount", 5))
	}
	if w.Devices && Pick(t, "devices by count", 4) > 0 {
		offer(gpu, w.value(t, "gpus", 6))
		offer(nic, w.value(t, "nics", 3))
	}
	slices.SortFunc(o.Allocatable, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	w.lastNode = o
	return o
}

// RepeatedNode draws the last observation again, sometimes with one thing changed.
func (w *World) RepeatedNode(t *rapid.T) ledger.NodeObservation {
	if w.lastNode.Name == "" {
		return w.NodeObservation(t)
	}
	switch o := &w.lastNode; Pick(t, "change", 6) {
	case 2:
		o.Unschedulable = !o.Unschedulable
	case 3:
		o.UID += "'"
	case 5:
		o.Labels = map[string]string{"pool": string(o.UID)}
	case 4:
		o.Allocatable = slices.DeleteFunc(slices.Clone(o.Allocatable), func(a resources.Amount) bool {
			return a.Column == resources.CPU
		})
	}
	return w.lastNode
}

// PodObservation draws a pod found bound, possibly long ago.
func (w *World) PodObservation(t *rapid.T, l *ledger.Ledger) ledger.PodObservation {
	o := ledger.PodObservation{
		Pod: w.ExistingPod(t), Node: w.Node(t), Request: w.Request(t, true),
		Scheduler:       oneOf(t, "scheduler", schedulers),
		Priority:        int32(Pick(t, "priority", 3)),
		ResourceVersion: w.Version(t),
	}
	o.Devices = w.observedDevices(t, o.Pod, l)
	o.Caller = w.caller(t)
	if Pick(t, "bound with a slot", 4) == 3 {
		o.Slot, o.SlotUID = w.SlotRef(t), oneOf(t, "reservation", reservationUIDs)
	}
	return o
}

// Version draws a resource version; 0 is an unknown one.
func (w *World) Version(t *rapid.T) uint64 { return uint64(Pick(t, "version", 9)) }

// Placement draws a pod to place somewhere.
func (w *World) Placement(t *rapid.T) ledger.Placement {
	p := ledger.Placement{
		Pod: w.Pod(t), Node: w.Node(t), Request: w.Request(t, false),
		Scheduler: oneOf(t, "scheduler", schedulers),
		Priority:  int32(Pick(t, "priority", 4)),
		Slots:     w.SlotRefs(t),
	}
	if p.Devices = w.DevicesOf(t, p.Pod); Pick(t, "uncounted", 8) < 7 {
		p.Request = p.Devices.Counted(w.Table, p.Request)
	}
	p.Caller = w.caller(t)
	p.NoDRA = w.DRA && Pick(t, "keep", 3) == 2
	return p
}

// Placements draws a few of them.
func (w *World) Placements(t *rapid.T) []ledger.Placement {
	var placements []ledger.Placement
	for range oneOf(t, "placements", []int{1, 1, 1, 2, 2, 3, 4, 0}) {
		placements = append(placements, w.Placement(t))
	}
	return placements
}

// Plan draws a plan of slots in memory, of any mode.
func (w *World) Plan(t *rapid.T) ledger.Plan {
	deadline := time.Time{}
	if Pick(t, "expires", 6) > 0 {
		deadline = w.Now.Add(time.Duration(Pick(t, "ttl", 8)-1) * time.Second)
	}
	plan := ledger.NewPlan(w.Placements(t), w.Mode(t), deadline)
	for k := range plan.Slots {
		plan.Slots[k].Movable, plan.Slots[k].PodToCome = Pick(t, "movable", 3) == 2, Pick(t, "pod-to-come", 3) == 2
	}
	return plan
}

// Exchange draws what happens beside a bind: some of what is kept in memory is given up, and slots for pods that ask
// for the same are made.
func (w *World) Exchange(t *rapid.T, kept []ledger.PodRef) *ledger.Exchange {
	x := &ledger.Exchange{}
	for _, pod := range kept {
		if rapid.Bool().Draw(t, "give up") {
			x.GiveUp = append(x.GiveUp, pod)
		}
	}
	for range Pick(t, "choices", 3) {
		plan, request := w.Plan(t), w.Request(t, false)
		for k := range plan.Slots {
			plan.Slots[k].Request, plan.Slots[k].Devices, plan.Slots[k].Slots = request, nil, nil
		}
		x.Keep = append(x.Keep, ledger.Choice{Slots: plan.Slots, Nodes: []string{w.Node(t), w.Node(t)}})
	}
	return x
}

// Mode draws what becomes of a plan of which a part does not fit.
func (w *World) Mode(t *rapid.T) ledger.Mode {
	return oneOf(t, "mode", []ledger.Mode{ledger.AllOrNothing, ledger.Partial, ""})
}

// Victims draws the UIDs of some pods.
func (w *World) Victims(t *rapid.T) []types.UID {
	var victims []types.UID
	for range Pick(t, "victims", 4) {
		victims = append(victims, w.ExistingPod(t).UID)
	}
	return victims
}

// Pass lets time go on.
func (w *World) Pass(t *rapid.T) {
	w.Now = w.Now.Add(time.Duration(Pick(t, "seconds", 4)) * time.Second)
}
