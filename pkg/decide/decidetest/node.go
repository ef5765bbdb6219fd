package decidetest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// AddNode adds a node with capacity for 110 pods to the ledger and the watched nodes. Its UID is "uid-" and its name.
func (w *World) AddNode(name, cpu, memory string) {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		v1.ResourcePods: resource.MustParse("110"),
	}}}
	w.Nodes.Put(&cluster.Node{Name: name, UID: types.UID("uid-" + name)})
	w.Ledger.ObserveNode(ledger.NodeObservation{
		Name: name, UID: types.UID("uid-" + name), Allocatable: resources.Allocatable(w.Ledger.Table(), node),
	})
}
