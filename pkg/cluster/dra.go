package cluster

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// DRAOffer says for which resources that pods ask for by count a ResourceSlice puts devices on some nodes.
type DRAOffer struct {
	Node  string                     // one node, or empty
	Nodes *nodeaffinity.NodeSelector // where Node is empty: the nodes; nil for all of them
	// Resources are the names, those of spec.extendedResourceName of DeviceClasses and those by their own names.
	Resources []v1.ResourceName
}

// draOffers are what ResourceSlices offer. Cache.apply guards it.
type draOffers struct {
	bySlice map[string][]DRAOffer
	byNode  map[string]map[string]bool // the slices that name a node
	wide    map[string]bool            // those that name others than single nodes
}

func newDRAOffers() draOffers {
	return draOffers{
		bySlice: map[string][]DRAOffer{}, byNode: map[string]map[string]bool{}, wide: map[string]bool{},
	}
}

// ObserveDRA records what a ResourceSlice offers by now, and nothing where it is gone.
func (c *Cache) ObserveDRA(slice string, offers []DRAOffer) {
	c.apply.Lock()
	defer c.apply.Unlock()
	before := c.dra.bySlice[slice]
	if len(before) == 0 && len(offers) == 0 {
		return
	}
	c.dra.forget(slice, before)
	c.dra.add(slice, offers)
	changed := map[string]bool{}
	for _, o := range slices.Concat(before, offers) {
		changed[o.Node] = true
	}
	if changed[""] {
		for _, node := range c.allNodes() {
			c.tellNode(node)
		}
		return
	}
	for name := range changed {
		if node := c.byName.get(name); node != nil {
			c.tellNode(node)
		}
	}
}

func (d *draOffers) add(slice string, offers []DRAOffer) {
	if len(offers) > 0 {
		d.bySlice[slice] = offers
	}
	for _, o := range offers {
		switch {
		case o.Node == "":
			d.wide[slice] = true
		case d.byNode[o.Node] == nil:
			d.byNode[o.Node] = map[string]bool{slice: true}
		default:
			d.byNode[o.Node][slice] = true
		}
	}
}

func (d *draOffers) forget(slice string, offers []DRAOffer) {
	delete(d.bySlice, slice)
	delete(d.wide, slice)
	for _, o := range offers {
		if delete(d.byNode[o.Node], slice); len(d.byNode[o.Node]) == 0 {
			delete(d.byNode, o.Node)
		}
	}
}

// on returns what DRA gives devices for on a node, in order. What the node's status.capacity has is its device
// plugin's, which is away where none of it is allocatable: kube-scheduler takes that for DRA's, and finds no devices.
func (d *draOffers) on(t *resources.Table, node *Node) (columns []resources.Column) {
	for _, named := range []map[string]bool{d.byNode[node.Name], d.wide} {
		for slice := range named {
			for _, o := range d.bySlice[slice] {
				if o.reaches(node) {
					columns = appendDRA(columns, t, node, o.Resources)
				}
			}
		}
	}
	slices.Sort(columns)
	return slices.Compact(columns)
}

func (o *DRAOffer) reaches(node *Node) bool {
	switch {
	case o.Node != "":
		return o.Node == node.Name
	case o.Nodes != nil:
		return o.Nodes.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}})
	}
	return true
}

func appendDRA(columns []resources.Column, t *resources.Table, node *Node, names []v1.ResourceName) []resources.Column {
	for _, name := range names {
		if slices.Contains(node.pluginAway, name) {
			continue
		}
		if column, ok := t.Offer(name); ok {
			columns = append(columns, column)
		}
	}
	return columns
}

// tellNode tells the ledger what is known of a node. c.apply is held.
func (c *Cache) tellNode(r *Node) {
	o := r.observation()
	o.DRA = c.dra.on(c.reader.Table, r)
	c.ledger.ObserveNode(*o)
}

// pluginAway returns what a node has by status.capacity and offers none of: its device plugin is away.
func pluginAway(status *v1.NodeStatus) (names []v1.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(status.Capacity)) {
		capacity, allocatable := status.Capacity[name], status.Allocatable[name]
		if capacity.Sign() > 0 && allocatable.Sign() <= 0 {
			names = append(names, name)
		}
	}
	return names
}
