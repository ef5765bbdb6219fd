package clusterload

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// FittingPod is a pod that waits for a node although there is one with capacity for it. A pod of a
// gang is one only where the whole gang would fit.
type FittingPod struct {
	Namespace, Name, Scheduler string
	// Gang is the pod's gang, if it has one.
	Gang string
	// Node has capacity for the pod.
	Node string
}

// isPending tells whether a scheduler has to do something about the pod.
func isPending(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// fittingPods returns every pending pod that would fit if it were the next to be placed: a single
// pod on any node, a gang whole.
func (a *account) fittingPods() []FittingPod {
	var fitting []FittingPod
	waiting := map[[2]string]*gang{}
	nodes := slices.Sorted(maps.Keys(a.nodes))
	for _, p := range a.pods {
		name, size, err := gangOf(p.pod)
		if err != nil || !isPending(p.pod) && name == "" {
			continue
		}
		if name == "" {
			fitting = append(fitting, a.placeAll([]*corev1.Pod{p.pod}, "", nodes)...)
			continue
		}
		key := [2]string{p.pod.Namespace, name}
		if waiting[key] == nil {
			waiting[key] = &gang{size: size}
		}
		g := waiting[key]
		g.members++
		if isPending(p.pod) {
			g.pending = append(g.pending, p.pod)
		}
	}
	for key, g := range waiting {
		if g.members >= g.size {
			fitting = append(fitting, a.placeAll(g.pending, key[1], nodes)...)
		}
	}
	slices.SortFunc(fitting, func(x, y FittingPod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return fitting
}

// gang is what is known of the pods that share a gang's name.
type gang struct {
	size, members int
	pending       []*corev1.Pod
}

// placeAll finds a node for each pod next to the others, largest first and each on the first of the
// nodes that has capacity, or returns nothing.
func (a *account) placeAll(pods []*corev1.Pod, gangName string, nodes []string) []FittingPod {
	requests := make(map[*corev1.Pod]resources.Request, len(pods))
	for _, pod := range pods {
		request, err := resources.ForIncomingPod(a.table, pod)
		if err != nil {
			return nil
		}
		requests[pod] = request
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int {
		rx, ry := requests[x], requests[y]
		return cmp.Or(cmp.Compare(ry.Value(resources.CPU), rx.Value(resources.CPU)),
			cmp.Compare(ry.Value(resources.Memory), rx.Value(resources.Memory)), cmp.Compare(x.Name, y.Name))
	})
	added := map[string][]resources.Request{}
	fitting := make([]FittingPod, 0, len(pods))
	for _, pod := range pods {
		request := requests[pod]
		node := a.nodeFor(pod, &request, added, nodes)
		if node == "" {
			return nil
		}
		added[node] = append(added[node], request)
		fitting = append(fitting, FittingPod{
			Namespace: pod.Namespace, Name: pod.Name, Scheduler: pod.Spec.SchedulerName, Gang: gangName, Node: node,
		})
	}
	return fitting
}

// nodeFor returns the first of the nodes that takes the pod next to what is bound and what was added, or "".
func (a *account) nodeFor(
	pod *corev1.Pod, request *resources.Request, added map[string][]resources.Request, nodes []string,
) string {
	for _, name := range nodes {
		n := a.nodes[name]
		if n.node == nil || !suits(pod, n.node) {
			continue
		}
		used := n.used
		if len(added[name]) > 0 {
			used = maps.Clone(n.used)
			for i := range added[name] {
				used.add(&added[name][i])
			}
		}
		if n.fits(used, request) && n.portsFree(request, added[name]) {
			return name
		}
	}
	return ""
}

// portsFree tells whether the host ports of a request are open on the node.
func (n *nodeState) portsFree(request *resources.Request, added []resources.Request) bool {
	collides := func(other *resources.Request) bool {
		return slices.ContainsFunc(request.Ports, func(p resources.HostPort) bool {
			return slices.ContainsFunc(other.Ports, p.CollidesWith)
		})
	}
	if len(request.Ports) == 0 {
		return true
	}
	for _, p := range n.pods {
		if collides(&p.request) {
			return false
		}
	}
	for i := range added {
		if collides(&added[i]) {
			return false
		}
	}
	return true
}

// suits tells whether the pod may run on the node at all: cordon, taints, selector and affinity.
func suits(pod *corev1.Pod, node *corev1.Node) bool {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints),
			corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	_, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
	if refused {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}
