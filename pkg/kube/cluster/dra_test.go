package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const gpus v1.ResourceName = "nvidia.com/gpu"

// fits lists which nodes a pod that asks for a GPU by count fits.
func (w *fedWorld) fits(nodes ...string) (fits []string) {
	w.t.Helper()
	pod, err := w.reader.NewPod(aPod("p", 1, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[gpus] = resource.MustParse("1")
	}))
	require.NoError(w.t, err)
	placement := pod.Placement("")
	for i, v := range w.decides.AppendFit(nil, &placement, nodes) {
		if v.Reason == ledger.Fits {
			fits = append(fits, nodes[i])
		}
	}
	return fits
}

func has(list func(*v1.NodeStatus) *v1.ResourceList, count string) func(*v1.Node) {
	return func(n *v1.Node) {
		if l := list(&n.Status); *l == nil {
			*l = v1.ResourceList{}
		}
		(*list(&n.Status))[gpus] = resource.MustParse(count)
	}
}

func capacity(s *v1.NodeStatus) *v1.ResourceList    { return &s.Capacity }
func allocatable(s *v1.NodeStatus) *v1.ResourceList { return &s.Allocatable }

// A node leaves to DRA what slices put devices on it for, whichever is known first, and nothing else.
func TestWhatSlicesOffer(t *testing.T) {
	w := newFedWorld(t)
	w.put(aNode("a", 1, "4"))
	assert.Empty(t, w.fits("a"))
	w.ObserveDRA("on-a", []DRAOffer{{Node: "a", Resources: []v1.ResourceName{gpus}}})
	w.ObserveDRA("on-b", []DRAOffer{{Node: "b", Resources: []v1.ResourceName{gpus}}})
	w.ObserveDRA("others", []DRAOffer{{Node: "c", Resources: []v1.ResourceName{"example.com/nic"}}})
	w.put(aNode("b", 1, "4"))
	w.put(aNode("c", 1, "4"))
	assert.Equal(t, []string{"a", "b"}, w.fits("a", "b", "c"))

	w.ObserveDRA("on-b", []DRAOffer{{Node: "c", Resources: []v1.ResourceName{gpus}}})
	assert.Equal(t, []string{"a", "c"}, w.fits("a", "b", "c"), "the slice is another node's now")
	w.ObserveDRA("on-b", nil)
	w.ObserveDRA("on-a", nil)
	assert.Empty(t, w.fits("a", "b", "c"))
	w.ObserveDRA("others", nil)
	assert.Empty(t, w.dra.bySlice)
	assert.Empty(t, w.dra.byNode)
}

// Slices may name all nodes, or some by their labels, which change.
func TestSlicesOfSeveralNodes(t *testing.T) {
	w := newFedWorld(t)
	rack := func(n *v1.Node) { n.Labels = map[string]string{"rack": "1"} }
	w.put(aNode("a", 1, "4", rack))
	w.put(aNode("b", 1, "4"))
	selector := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpIn, Values: []string{"1"}}},
	}}}
	w.ObserveDRA("s", []DRAOffer{{Selector: selector, Resources: []v1.ResourceName{gpus}}})
	assert.Equal(t, []string{"a"}, w.fits("a", "b"))
	w.put(aNode("a", 2, "4"))
	w.put(aNode("b", 2, "4", rack))
	assert.Equal(t, []string{"b"}, w.fits("a", "b"))
	w.ObserveDRA("s", []DRAOffer{{Resources: []v1.ResourceName{gpus}}})
	assert.Equal(t, []string{"a", "b"}, w.fits("a", "b"))
	w.ObserveDRA("s", nil)
	assert.Empty(t, w.fits("a", "b"))
	assert.Empty(t, w.dra.byNode)
}

// A node's capacity is its device plugin's: none of it is DRA's while the plugin is away.
func TestCapacityIsNotLeftToDRA(t *testing.T) {
	w := newFedWorld(t)
	w.ObserveDRA("on-a", []DRAOffer{{Node: "a", Resources: []v1.ResourceName{gpus}}})
	w.put(aNode("a", 1, "4", has(capacity, "8"), has(allocatable, "0")))
	assert.Empty(t, w.fits("a"))
	w.put(aNode("a", 2, "4", has(capacity, "8"), has(allocatable, "8")))
	assert.Equal(t, []string{"a"}, w.fits("a"))
	w.put(aNode("a", 3, "4", has(capacity, "8")))
	assert.Empty(t, w.fits("a"))
	w.put(aNode("a", 4, "4", has(capacity, "0"), has(allocatable, "0")))
	assert.Equal(t, []string{"a"}, w.fits("a"))
}
