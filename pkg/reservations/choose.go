package reservations

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// account is the part of the ledger that choosing nodes needs.
type account interface {
	Table() *resources.Table
	AppendUsage(dst []ledger.Usage, nodes []string, columns []resources.Column) []ledger.Usage
	FitAll(p *ledger.Placement, visit func(node string, v ledger.Verdict) (more bool))
	AppendFit(dst []ledger.Verdict, p *ledger.Placement, nodes []string) []ledger.Verdict
}

// rooms is what is free on all nodes, less what slots chosen before take. It is
// as of one moment: the ledger decides in the end.
type rooms struct {
	account account
	all     []*room
	byName  map[string]*room
	last    []taken // by the last reservation chosen for
	search  search
}

type room struct {
	cluster.Node
	allocatable, free []int64 // by column
	ports             []resources.HostPort
	// devices are what slots of the reservation that is being chosen for take. What earlier ones
	// took is in the ledger, which is asked about devices each time.
	devices []*devices.Request
}

type taken struct {
	room *room
	req  *resources.Request
}

func newRooms(a account, nodes []cluster.Node) *rooms {
	r := &rooms{account: a, byName: make(map[string]*room, len(nodes))}
	slices.SortFunc(nodes, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	columns := make([]resources.Column, a.Table().Len())
	for i := range columns {
		columns[i] = resources.Column(i)
	}
	usage := a.AppendUsage(nil, names, columns)
	for i := range nodes {
		free, allocatable := make([]int64, len(columns)), make([]int64, len(columns))
		for k := range columns {
			u := usage[i*len(columns)+k]
			free[k], allocatable[k] = u.Free(), u.Allocatable
		}
		r.all = append(r.all, &room{Node: nodes[i], allocatable: allocatable, free: free})
		r.byName[nodes[i].Name] = r.all[i]
	}
	return r
}

// choose fills in the nodes of the holds that have none, those with devices first,
// then the largest, and each on the node that it leaves least room on. The slots are those of the
// holds, in the same order. Where a slot finds no node it returns why, and undo
// must be called.
func (r *rooms) choose(holds []ledger.Hold, slots []v1alpha1.Slot) *cause {
	for _, t := range r.last {
		t.room.devices = nil
	}
	r.last = r.last[:0]
	var open []int
	for i := range holds {
		if holds[i].Node == "" {
			open = append(open, i)
		} else if room := r.byName[holds[i].Node]; room != nil {
			r.take(room, &holds[i])
		}
	}
	slices.SortStableFunc(open, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(len(requestsOf(&holds[b])), len(requestsOf(&holds[a]))),
			cmp.Compare(holds[b].Request.Value(resources.CPU), holds[a].Request.Value(resources.CPU)),
			cmp.Compare(holds[b].Request.Value(resources.Memory), holds[a].Request.Value(resources.Memory)))
	})
	for _, i := range open {
		best, why := r.best(&holds[i], &slots[i])
		if best == nil {
			return &cause{reasonNoNodeFits, fmt.Sprintf("slot %s: %s", slots[i].Name, why)}
		}
		holds[i].Node = best.Name
		r.take(best, &holds[i])
	}
	return nil
}

// search is where slots of one kind may be, not counting what was taken since.
// Slots of a group are mostly alike, and so are the groups that wait: the last
// search is kept for as long as the rooms are.
type search struct {
	req     *resources.Request
	devices *ledger.DeviceRequest
	slot    *v1alpha1.Slot
	found   []*room
	refused map[string]int // nodes, by why
}

// isFor reports whether the search is for slots like this one.
func (s *search) isFor(h *ledger.Hold, slot *v1alpha1.Slot) bool {
	return s.req != nil && s.req.Equal(h.Request) && s.devices.Same(h.Devices) && maps.Equal(s.slot.NodeSelector, slot.NodeSelector) &&
		apiequality.Semantic.DeepEqual(s.slot.Tolerations, slot.Tolerations)
}

// look asks the ledger about all nodes at once.
func (r *rooms) look(h *ledger.Hold, slot *v1alpha1.Slot) {
	verdicts := make(map[string]ledger.Verdict, len(r.all))
	asked := ledger.Placement{Pod: h.Pod, Request: h.Request, Devices: h.Devices}
	r.account.FitAll(&asked, func(node string, v ledger.Verdict) bool {
		verdicts[node] = v
		return true
	})
	r.search = search{req: h.Request, devices: h.Devices, slot: slot, refused: map[string]int{}}
	for _, room := range r.all {
		v, known := verdicts[room.Name]
		if !known {
			v.Reason = ledger.NodeUnknown
		}
		if reason := r.refuses(room, v); reason != "" {
			r.search.refused[reason]++
		} else {
			r.search.found = append(r.search.found, room)
		}
	}
}

// best returns the node that a slot fits best, or nil and why there is none.
func (r *rooms) best(h *ledger.Hold, slot *v1alpha1.Slot) (best *room, why string) {
	if len(r.all) == 0 {
		return nil, "there are no nodes"
	}
	if !r.search.isFor(h, slot) {
		r.look(h, slot)
	}
	req := h.Request
	bestLeft := 0.0
	for _, room := range r.search.found {
		if short := room.short(req); short >= 0 || (len(req.Ports) > 0 && room.portTaken(req)) {
			continue
		}
		if left := room.leftAfter(req); (best == nil || left < bestLeft) && r.hasDevices(room, h) {
			best, bestLeft = room, left
		}
	}
	if best != nil {
		return best, ""
	}
	refused := maps.Clone(r.search.refused)
	for _, room := range r.search.found {
		if short := room.short(req); short >= 0 {
			refused[r.tooLittle(req.Amounts[short].Column)]++
		} else if room.portTaken(req) {
			refused[whyPort]++
		} else {
			refused[whyDevices]++
		}
	}
	return nil, summary(len(r.all), refused)
}

const (
	whyPort    = "with a host port taken"
	whyDevices = "with too few free devices"
)

// hasDevices reports whether a node has devices for a hold beside those that other
// slots of the reservation take there.
func (r *rooms) hasDevices(room *room, h *ledger.Hold) bool {
	if h.Devices == nil {
		return true
	}
	together := ledger.Placement{
		Request: &resources.Request{ToleratesUnschedulable: true},
		Devices: &ledger.DeviceRequest{Requests: slices.Concat(room.devices, h.Devices.Requests)},
	}
	return r.account.AppendFit(nil, &together, []string{room.Name})[0].Reason == ledger.Fits
}

// requestsOf returns what a hold asks for of devices.
func requestsOf(h *ledger.Hold) []*devices.Request {
	if h.Devices == nil {
		return nil
	}
	return h.Devices.Requests
}

func (r *rooms) tooLittle(c resources.Column) string {
	return "with too little " + string(r.account.Table().Name(c))
}

// refuses tells in a word why the slots searched for cannot be on a node; empty
// if they can.
func (r *rooms) refuses(room *room, v ledger.Verdict) string {
	req, slot := r.search.req, r.search.slot
	for key, want := range slot.NodeSelector {
		if got, ok := room.Labels[key]; !ok || got != want {
			return "not selected by nodeSelector"
		}
	}
	switch {
	case v.Reason == ledger.NodeUnknown:
		return "just deleted"
	case v.Reason == ledger.NodeUnschedulable:
		return "cordoned"
	case untolerated(room.Taints, slot.Tolerations, req.ToleratesUnschedulable):
		return "with a taint the slot does not tolerate"
	case v.Reason == ledger.HostPortConflict:
		return whyPort
	case v.Reason == ledger.InsufficientResource && v.Unlisted:
		return "without " + string(req.Unlisted[0].Name)
	case v.Reason == ledger.InsufficientResource:
		return r.tooLittle(v.Column)
	case v.Reason == ledger.InsufficientDevices:
		return whyDevices
	case v.Reason == ledger.DeviceClaimInUse:
		return "because another pod has a claim that the slot keeps devices for"
	case v.Reason != ledger.Fits:
		return v.Reason.String()
	default:
		return ""
	}
}

// short returns the index of an amount the room has too little of, -1 if none.
func (r *room) short(req *resources.Request) int {
	for k := range req.Amounts {
		if a := &req.Amounts[k]; int(a.Column) >= len(r.free) || a.Value > r.free[a.Column] {
			return k
		}
	}
	return -1
}

// untolerated reports whether a taint keeps the slot's pod off the node. The
// taint of a cordoned node is the ledger's matter.
func untolerated(taints []v1.Taint, tolerations []v1.Toleration, toleratesCordon bool) bool {
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, tolerations, func(t *v1.Taint) bool {
		if t.Key == v1.TaintNodeUnschedulable && toleratesCordon {
			return false
		}
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}, false)
	return found
}

func (r *room) portTaken(req *resources.Request) bool {
	return slices.ContainsFunc(req.Ports, func(p resources.HostPort) bool {
		return slices.ContainsFunc(r.ports, p.CollidesWith)
	})
}

// leftAfter is how much of the node would be free with the request on it: the
// sum of the shares of what it names. Less is better.
func (r *room) leftAfter(req *resources.Request) float64 {
	left := 0.0
	for _, a := range req.Amounts {
		if int(a.Column) < len(r.free) && r.allocatable[a.Column] > 0 {
			left += float64(r.free[a.Column]-a.Value) / float64(r.allocatable[a.Column])
		}
	}
	return left
}

func (r *rooms) take(room *room, h *ledger.Hold) {
	room.use(h.Request, 1)
	room.ports = append(room.ports, h.Request.Ports...)
	room.devices = append(room.devices, requestsOf(h)...)
	r.last = append(r.last, taken{room, h.Request})
}

// undo gives back what the last reservation took.
func (r *rooms) undo() {
	for i := len(r.last) - 1; i >= 0; i-- {
		t := r.last[i]
		t.room.use(t.req, -1)
		t.room.ports = t.room.ports[:len(t.room.ports)-len(t.req.Ports)]
		t.room.devices = nil
	}
	r.last = r.last[:0]
}

func (r *room) use(req *resources.Request, sign int64) {
	for _, a := range req.Amounts {
		if int(a.Column) < len(r.free) {
			r.free[a.Column] = resources.Sub(r.free[a.Column], sign*a.Value)
		}
	}
}

// summary counts the nodes by why they were refused, the most frequent first.
func summary(nodes int, refused map[string]int) string {
	reasons := slices.SortedFunc(maps.Keys(refused), func(a, b string) int {
		return cmp.Or(cmp.Compare(refused[b], refused[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(reasons))
	for i, reason := range reasons {
		parts[i] = fmt.Sprintf("%d %s", refused[reason], reason)
	}
	return fmt.Sprintf("no node of %d fits: %s", nodes, strings.Join(parts, ", "))
}
