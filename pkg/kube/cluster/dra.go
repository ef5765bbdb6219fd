package cluster

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// DRAOffer says for which resources a ResourceSlice puts devices on some nodes. Pods ask for these by count.
type DRAOffer struct {
	Node     string           // one node, or empty
	Selector *v1.NodeSelector // where Node is empty: the nodes; nil for all of them
	// Resources are the names: spec.extendedResourceName of DeviceClasses, and those by the names of the classes.
	Resources []v1.ResourceName
}

// draOffer is a DRAOffer whose selector is read. One that cannot be read is for no node.
type draOffer struct {
	DRAOffer

	nodes *nodeaffinity.NodeSelector
	bad   bool
}

// draOffers are what ResourceSlices offer. Cache.apply guards it.
type draOffers struct {
	bySlice map[string][]draOffer
	byNode  map[string]map[string]bool // the slices that name a node; by "" those that name others than single nodes
}

func newDRAOffers() draOffers {
	return draOffers{bySlice: map[string][]draOffer{}, byNode: map[string]map[string]bool{}}
}

// ObserveDRA records what a ResourceSlice offers by now, and nothing where it is gone.
func (c *Cache) ObserveDRA(slice string, offers []DRAOffer) {
	c.apply.Lock()
	defer c.apply.Unlock()
	before := c.dra.bySlice[slice]
	if slices.EqualFunc(before, offers, func(a draOffer, b DRAOffer) bool { return a.equal(&b) }) {
		return
	}
	c.dra.forget(slice, before)
	changed := slices.Concat(before, c.dra.add(slice, offers))
	if !slices.ContainsFunc(changed, func(o draOffer) bool { return o.Node == "" }) {
		for _, o := range changed {
			if node := c.byName.get(o.Node); node != nil {
				c.tellNode(node)
			}
		}
		return
	}
	for _, node := range c.allNodes() {
		if slices.ContainsFunc(changed, func(o draOffer) bool { return o.reaches(node) }) {
			c.tellNode(node)
		}
	}
}

func (o *DRAOffer) equal(other *DRAOffer) bool {
	return o.Node == other.Node && slices.Equal(o.Resources, other.Resources) &&
		equality.Semantic.DeepEqual(o.Selector, other.Selector)
}

func (d *draOffers) add(slice string, offers []DRAOffer) (added []draOffer) {
	for _, offer := range offers {
		o := draOffer{DRAOffer: offer}
		if o.Selector != nil {
			var err error
			o.nodes, err = nodeaffinity.NewNodeSelector(o.Selector)
			o.bad = err != nil
		}
		added = append(added, o)
		if d.byNode[o.Node] == nil {
			d.byNode[o.Node] = map[string]bool{}
		}
		d.byNode[o.Node][slice] = true
	}
	if len(added) > 0 {
		d.bySlice[slice] = added
	}
	return added
}

func (d *draOffers) forget(slice string, offers []draOffer) {
	delete(d.bySlice, slice)
	for _, o := range offers {
		if delete(d.byNode[o.Node], slice); len(d.byNode[o.Node]) == 0 {
			delete(d.byNode, o.Node)
		}
	}
}

// on returns the resources that DRA has devices for on a node, in order. Those in the node's status.capacity are its
// device plugin's, which is away where none is allocatable: kube-scheduler takes them for DRA's, and finds no devices.
func (d *draOffers) on(t *resources.Table, node *Node) (columns []resources.Column) {
	for _, named := range []map[string]bool{d.byNode[node.Name], d.byNode[""]} {
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

func (o *draOffer) reaches(node *Node) bool {
	switch {
	case o.Node != "":
		return o.Node == node.Name
	case o.nodes != nil:
		return o.nodes.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}})
	}
	return !o.bad
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

// tellNode reports what is known of a node to the ledger. c.apply is held.
func (c *Cache) tellNode(r *Node) {
	o := r.observation()
	o.DRA = c.dra.on(c.reader.Table, r)
	c.ledger.ObserveNode(*o)
}

// pluginAway returns the resources in a node's status.capacity of which it offers none: their device plugin is away.
func pluginAway(status *v1.NodeStatus) (names []v1.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(status.Capacity)) {
		capacity, allocatable := status.Capacity[name], status.Allocatable[name]
		if capacity.Sign() > 0 && allocatable.Sign() <= 0 {
			names = append(names, name)
		}
	}
	return names
}
