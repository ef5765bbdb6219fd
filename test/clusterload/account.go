package clusterload

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// account adds up what is bound to each node. It has no lock and no clock; Watcher owns it.
type account struct {
	table *resources.Table
	nodes map[string]*nodeState
	pods  map[types.UID]*podState
	// binds counts how often a pod got a node; moves counts those and every other time a pod
	// appeared, finished or went.
	binds, moves int
	// rebinds tells of pods whose node changed after they were bound.
	rebinds []string
}

// amounts maps a resource's column to milli-CPU, bytes or a count.
type amounts map[resources.Column]int64

type nodeState struct {
	name        string
	node        *corev1.Node // nil while only pods have named it
	allocatable amounts
	used        amounts
	pods        map[types.UID]*podState
	over        amounts // what was used, by the columns that had too much of it when last judged
}

type podState struct {
	pod *corev1.Pod
	// node is where the pod counts: empty while it is not bound, and once it has finished.
	node    string
	request resources.Request // what it counts for there
	// refused: the pod had no capacity left on its node when it arrived, so that a kubelet would have failed it.
	refused bool
}

// excess is a resource of which more is bound to a node than it offers.
type excess struct {
	node              string
	resource          corev1.ResourceName
	used, allocatable int64
}

func newAccount() *account {
	return &account{
		table: resources.NewTable(), nodes: map[string]*nodeState{}, pods: map[types.UID]*podState{},
	}
}

// setNode takes in a node as it is now.
func (a *account) setNode(node *corev1.Node) []excess {
	n := a.nodeNamed(node.Name)
	n.node = node
	n.allocatable = amounts{}
	for _, offered := range resources.Allocatable(a.table, node) {
		n.allocatable[offered.Column] = offered.Value
	}
	return a.judge(n)
}

// removeNode takes in that a node is gone. Its pods stay bound to its name, in case it comes back.
func (a *account) removeNode(name string) {
	n, known := a.nodes[name]
	if !known {
		return
	}
	n.node, n.allocatable, n.over = nil, nil, nil
	a.dropUnused(n)
}

// setPod takes in a pod as it is now.
func (a *account) setPod(pod *corev1.Pod) []excess {
	p, known := a.pods[pod.UID]
	if !known {
		p = &podState{}
		a.pods[pod.UID] = p
	}
	if known && p.pod.Spec.NodeName != "" && p.pod.Spec.NodeName != pod.Spec.NodeName {
		a.rebinds = append(a.rebinds, fmt.Sprintf("%s/%s from %q to %q", pod.Namespace, pod.Name, p.pod.Spec.NodeName,
			pod.Spec.NodeName))
	}
	p.pod = pod
	before, now := p.node, countsOn(pod)
	p.node = now
	if !known || before != now {
		a.moves++
	}
	if now != "" && before != now {
		a.binds++
	}
	var found []excess
	if before != "" && before != now {
		found = a.leave(before, pod.UID)
	}
	if now == "" {
		return found
	}
	p.request = resources.ForBoundPod(a.table, pod)
	n := a.nodeNamed(now)
	if before != now {
		p.refused = !n.admits(p)
	}
	n.pods[pod.UID] = p
	n.addUp()
	return append(found, a.judge(n)...)
}

// removePod takes in that a pod is deleted.
func (a *account) removePod(uid types.UID) []excess {
	p, known := a.pods[uid]
	if !known {
		return nil
	}
	delete(a.pods, uid)
	a.moves++
	if p.node == "" {
		return nil
	}
	return a.leave(p.node, uid)
}

// countsOn is the node whose capacity the pod uses: bound and not finished, terminating included.
func countsOn(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return ""
	}
	return pod.Spec.NodeName
}

func (a *account) leave(name string, uid types.UID) []excess {
	n := a.nodes[name]
	delete(n.pods, uid)
	n.addUp()
	found := a.judge(n)
	a.dropUnused(n)
	return found
}

func (a *account) nodeNamed(name string) *nodeState {
	n, known := a.nodes[name]
	if !known {
		n = &nodeState{name: name, used: amounts{}, pods: map[types.UID]*podState{}}
		a.nodes[name] = n
	}
	return n
}

func (a *account) dropUnused(n *nodeState) {
	if n.node == nil && len(n.pods) == 0 {
		delete(a.nodes, n.name)
	}
}

// addUp sums the node's pods anew: nothing is carried over that an error could hide in.
func (n *nodeState) addUp() {
	n.used = amounts{}
	for _, p := range n.pods {
		n.used.add(&p.request)
	}
}

func (m amounts) add(request *resources.Request) {
	for _, asked := range request.Amounts {
		m[asked.Column], _ = resources.Add(m[asked.Column], asked.Value)
	}
}

// admits tells whether the node's kubelet would take the pod in next to the pods it has taken in
// before. It fails others with OutOfcpu and the like, and they use nothing from then on.
func (n *nodeState) admits(arriving *podState) bool {
	if n.node == nil {
		return true
	}
	admitted := amounts{}
	for _, p := range n.pods {
		if !p.refused && p != arriving {
			admitted.add(&p.request)
		}
	}
	return n.fits(admitted, &arriving.request)
}

// fits tells whether a request has capacity on the node next to what is used.
func (n *nodeState) fits(used amounts, request *resources.Request) bool {
	if len(request.Unlisted) > 0 {
		return false
	}
	for _, asked := range request.Amounts {
		if sum, _ := resources.Add(used[asked.Column], asked.Value); sum > n.allocatable[asked.Column] {
			return false
		}
	}
	return true
}

// judge returns of which resources the node has too much bound, as far as that is new: each amount
// is told once. A node that does not exist offers nothing that could be overcommitted.
func (a *account) judge(n *nodeState) []excess {
	if n.node == nil {
		return nil
	}
	before := n.over
	n.over = amounts{}
	var found []excess
	for column, used := range n.used {
		if used <= n.allocatable[column] {
			continue
		}
		n.over[column] = used
		if before[column] != used {
			found = append(found, excess{
				node: n.name, resource: a.table.Name(column), used: used, allocatable: n.allocatable[column],
			})
		}
	}
	slices.SortFunc(found, func(x, y excess) int { return cmp.Compare(x.resource, y.resource) })
	return found
}

// overcommitted counts the nodes that have too much bound of any resource.
func (a *account) overcommitted() int {
	count := 0
	for _, n := range a.nodes {
		if len(n.over) > 0 {
			count++
		}
	}
	return count
}
