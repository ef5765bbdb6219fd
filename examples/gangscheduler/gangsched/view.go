package gangsched

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// view is this scheduler's picture of the cluster for one attempt at a gang. It is built from the
// informers each time, which is plenty for an example; a scheduler for large clusters would keep it.
type view struct {
	table *resources.Table
	nodes map[string]*viewNode
	// homes are the nodes where pods have capacity reserved already.
	homes map[types.NamespacedName]string
}

// viewNode is a node with what is free on it by this view.
type viewNode struct {
	node  *corev1.Node
	free  map[resources.Column]int64
	ports []resources.HostPort
	// closed: GlobalReserve refused the node for a reason no amount can express.
	closed bool
}

// newView counts every pod that has a node and has not finished, by what nodeOf says of it.
func newView(nodes []*corev1.Node, pods []*corev1.Pod, nodeOf func(*corev1.Pod) string) *view {
	v := &view{
		table: resources.NewTable(), nodes: make(map[string]*viewNode, len(nodes)), homes: map[types.NamespacedName]string{},
	}
	for _, node := range nodes {
		n := &viewNode{node: node, free: map[resources.Column]int64{}}
		for _, offered := range resources.Allocatable(v.table, node) {
			n.free[offered.Column] = offered.Value
		}
		v.nodes[node.Name] = n
	}
	for _, pod := range pods {
		n := v.nodes[nodeOf(pod)]
		if n == nil || isFinished(pod) {
			continue
		}
		request := resources.ForBoundPod(v.table, pod)
		n.use(&request)
	}
	return v
}

func (n *viewNode) use(request *resources.Request) {
	for _, asked := range request.Amounts {
		n.free[asked.Column] = resources.Sub(n.free[asked.Column], asked.Value)
	}
	n.ports = append(n.ports, request.Ports...)
}

func (n *viewNode) giveBack(request *resources.Request) {
	for _, asked := range request.Amounts {
		n.free[asked.Column], _ = resources.Add(n.free[asked.Column], asked.Value)
	}
	n.ports = n.ports[:len(n.ports)-len(request.Ports)]
}

// fits reports whether the pod may run on the node and has capacity there.
func (n *viewNode) fits(pod *corev1.Pod, request *resources.Request) bool {
	if n.closed || len(request.Unlisted) > 0 {
		return false
	}
	for _, asked := range request.Amounts {
		if asked.Value > n.free[asked.Column] {
			return false
		}
	}
	for _, port := range request.Ports {
		if slices.ContainsFunc(n.ports, port.CollidesWith) {
			return false
		}
	}
	return n.takes(pod)
}

// takes reports whether cordon, taints, node selector and required affinity let the pod in.
func (n *viewNode) takes(pod *corev1.Pod) bool {
	taints := n.node.Spec.Taints
	if n.node.Spec.Unschedulable {
		taints = append(slices.Clone(taints),
			corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	_, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations, hard, false)
	if refused {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.node)
	return err == nil && matches
}

// correct takes over what GlobalReserve knows better: what is free next to all that others were promised,
// which no informer shows. placed is how much of that resource the refused plan itself
// had put on the node before the refused pod: the answer's Free is what was left after it.
func (v *view) correct(r reserver.Rejection, placed int64) {
	n := v.nodes[r.Node]
	if n == nil {
		return
	}
	column, known := v.table.Lookup(corev1.ResourceName(r.Resource))
	if r.Reason != reasonInsufficientResource || !known {
		n.closed = true
		return
	}
	free, _ := resources.Add(r.Free, placed)
	n.free[column] = min(n.free[column], free)
}
