package schedulerplugin

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// maxKept bounds the nodes that a pod is kept to.
	maxKept = 16
	// afterKept is when a pod that was kept to some nodes, and is not bound, has its choice of all nodes.
	afterKept = 250 * time.Millisecond
)

// keptFor returns the nodes that keep capacity the pod may use: among thousands the scheduler would hardly look at
// them. There are none where other pods, volumes or devices of DRA decide where the pod can be, and for one that was
// kept to them and not placed, or has lost a race: it has its choice of all nodes.
func (p *Plugin) keptFor(c *cycle, nodes []fwk.NodeInfo) sets.Set[string] {
	if len(c.placement.Slots) == 0 || c.group != nil || !c.pod.Constraints.NodesDecide() || p.waker.lost(c.pod.Ref.UID) {
		return nil
	}
	wanted := sets.New[string]()
	for _, slot := range p.server.ledger.PreferredSlots(&c.placement) {
		if wanted.Insert(slot.Node); wanted.Len() == maxKept {
			break
		}
	}
	if wanted.Len() == 0 {
		return nil
	}
	kept, accepts := sets.New[string](), c.pod.Constraints.Accepts()
	for _, info := range nodes {
		node := info.Node()
		if wanted.Has(node.Name) && accepts(&cluster.Node{Name: node.Name, Labels: node.Labels, Taints: node.Spec.Taints}) {
			kept.Insert(node.Name)
		}
	}
	if kept.Len() == 0 {
		return nil
	}
	// Other plugins may refuse all of them.
	p.waker.again(c.pod, ledger.Fits, afterKept)
	return kept
}
