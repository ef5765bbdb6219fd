package arbiter

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// survey is a copy of what is free on every node, on which pods can be tried.
// It guides the choice of nodes only: the ledger decides on what was chosen. It
// knows capacity, host ports and cordons, and nothing of selectors, affinity and
// taints, which the ledger does not know either.
type survey struct {
	ledger  *ledger.Ledger
	without []types.UID
	nodes   []surveyed // ordered by name
}

type surveyed struct {
	name              string
	cordoned          bool
	devices           []ledger.DeviceView
	allocatable, free []int64              // by column
	ports             []resources.HostPort // of pods that were tried here
}

// newSurvey copies the free amounts of all nodes as if the claims of some pods
// were gone.
func newSurvey(l *ledger.Ledger, without []types.UID) *survey {
	views, _ := l.Nodes()
	s := &survey{ledger: l, without: without, nodes: make([]surveyed, 0, len(views))}
	table := l.Table()
	for i := range views {
		view := &views[i]
		if !view.Exists {
			continue
		}
		n := surveyed{name: view.Name, cordoned: view.Unschedulable, devices: view.Devices}
		for _, a := range view.Amounts {
			if column, ok := table.Lookup(a.Resource); ok {
				n.allocatable = setAt(n.allocatable, column, a.Allocatable)
				n.free = setAt(n.free, column, a.Free)
			}
		}
		s.nodes = append(s.nodes, n)
	}
	for _, uid := range without {
		// The room of a pod that uses a reservation stays with the reservation.
		if view, ok := l.Claim(ledger.PodRef{UID: uid}); ok && view.Hold.Name == "" {
			s.give(view.Node, view.Request)
		}
	}
	return s
}

func setAt(row []int64, c resources.Column, value int64) []int64 {
	if missing := int(c) + 1 - len(row); missing > 0 {
		row = append(row, make([]int64, missing)...)
	}
	row[c] = value
	return row
}

func valueAt(row []int64, c resources.Column) int64 {
	if int(c) < len(row) {
		return row[c]
	}
	return 0
}

// find returns a node of the survey, or nil.
func (s *survey) find(name string) *surveyed {
	i, ok := slices.BinarySearchFunc(s.nodes, name, func(n surveyed, name string) int { return cmp.Compare(n.name, name) })
	if !ok {
		return nil
	}
	return &s.nodes[i]
}

// give adds the room of a pod that is gone.
func (s *survey) give(node string, request *resources.Request) {
	n := s.find(node)
	if n == nil {
		return
	}
	for _, a := range request.Amounts {
		sum, _ := resources.Add(valueAt(n.free, a.Column), a.Value)
		n.free = setAt(n.free, a.Column, sum)
	}
}

// take subtracts the room of a pod that was tried there.
func (s *survey) take(n *surveyed, request *resources.Request) {
	for _, a := range request.Amounts {
		n.free = setAt(n.free, a.Column, resources.Sub(valueAt(n.free, a.Column), a.Value))
	}
	n.ports = append(n.ports, request.Ports...)
}

// bestFit returns the node with room for the pod on which least is left over, as
// a share of what the node offers; nil where there is no room anywhere.
func (s *survey) bestFit(p *ledger.Placement) *surveyed {
	var best *surveyed
	least := math.Inf(1)
	for i := range s.nodes {
		n := &s.nodes[i]
		if over := n.leftOver(p.Request); over < least && s.fits(n, p.Request) && s.hasDevices(n, p) {
			best, least = n, over
		}
	}
	return best
}

func (n *surveyed) leftOver(request *resources.Request) float64 {
	sum := 0.0
	for _, a := range request.Amounts {
		if offered := valueAt(n.allocatable, a.Column); offered > 0 && a.Column != resources.Pods {
			sum += float64(resources.Sub(valueAt(n.free, a.Column), a.Value)) / float64(offered)
		}
	}
	return sum
}

func (s *survey) fits(n *surveyed, request *resources.Request) bool {
	if (n.cordoned && !request.ToleratesUnschedulable) || len(request.Unlisted) > 0 {
		return false
	}
	for _, a := range request.Amounts {
		if a.Value > valueAt(n.free, a.Column) {
			return false
		}
	}
	return !s.portTaken(n, request)
}

// hasDevices asks the ledger whether a node has devices for the pod's claims. Devices
// for pods tried before are not left out: the ledger decides in the end.
func (s *survey) hasDevices(n *surveyed, p *ledger.Placement) bool {
	if p.Devices == nil {
		return true
	}
	devicesOnly := ledger.Placement{
		Pod: p.Pod, Node: n.name, Request: &resources.Request{ToleratesUnschedulable: true}, Devices: p.Devices,
	}
	return s.fitWithout(&devicesOnly).Reason == ledger.Fits
}

// portTaken asks the survey for the pods tried before, and the ledger for those
// that are there.
func (s *survey) portTaken(n *surveyed, request *resources.Request) bool {
	if len(request.Ports) == 0 {
		return false
	}
	for _, asked := range request.Ports {
		if slices.ContainsFunc(n.ports, asked.CollidesWith) {
			return true
		}
	}
	portsOnly := resources.Request{Ports: request.Ports, ToleratesUnschedulable: true}
	v := s.fitWithout(&ledger.Placement{Node: n.name, Request: &portsOnly})
	return v.Reason == ledger.HostPortConflict
}

// fitWithout asks the ledger about one node without the pods that are taken to be gone.
func (s *survey) fitWithout(p *ledger.Placement) (v ledger.Verdict) {
	s.ledger.Try(func(t *ledger.Trial) {
		t.Remove(s.without...)
		v = t.AppendFit(nil, p, []string{p.Node})[0]
	})
	return v
}

// closest returns the node on which the pod lacks least: the fewest resources,
// then the smallest share of what it asks for. Nodes without free devices for it
// come after those with, cordoned ones last. It returns nil where there are no
// nodes at all.
func (s *survey) closest(p *ledger.Placement) *surveyed {
	request := p.Request
	var best *surveyed
	least := math.Inf(1)
	for i := range s.nodes {
		n := &s.nodes[i]
		lack := 0.0
		for _, m := range n.missing(request) {
			lack += 1 + float64(m.value)/float64(request.Value(m.column))
		}
		if n.cordoned && !request.ToleratesUnschedulable {
			lack += 1e6
		}
		if !s.hasDevices(n, p) {
			lack += n.lacksDevices(p.Devices.Requests)
		}
		if lack < least {
			best, least = n, lack
		}
	}
	return best
}

// lacksDevices tells how far a node without free devices for a pod is from having
// them: nearest where somebody else has them, farthest where none are of the resource.
func (n *surveyed) lacksDevices(requests []*devices.Request) float64 {
	all := make([]devices.Device, len(n.devices))
	of := map[string]bool{}
	for i := range n.devices {
		all[i] = n.devices[i].Device
		of[all[i].Resource] = true
	}
	pool := devices.NewPool(all)
	if pool.Fits(pool.Schedulable(), requests).Reason == devices.Fits {
		return 1e3
	}
	lack := 2e3
	for _, r := range requests {
		if !of[r.Resource()] {
			lack += 1e3
		}
	}
	return lack
}

// missing is how much of a column a node lacks for a pod.
type missing struct {
	column resources.Column
	value  int64
}

func (n *surveyed) missing(request *resources.Request) []missing {
	var list []missing
	for _, a := range request.Amounts {
		if lack := resources.Sub(a.Value, valueAt(n.free, a.Column)); lack > 0 {
			list = append(list, missing{a.Column, lack})
		}
	}
	return list
}
