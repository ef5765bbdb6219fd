package gangsched

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// placement is one pod of a plan with the node it is to run on.
type placement struct {
	pod     *corev1.Pod
	request resources.Request
	node    string
}

// plan finds a node for every pod next to the others, largest pod first: by bestFit or, if a pod finds none that way,
// all of them by firstFit. A pod that has capacity reserved goes there, before all others. plan returns false when a
// pod finds no node. The view is left as it was.
func (v *view) plan(pods []*corev1.Pod) ([]placement, bool, error) {
	placements := make([]placement, 0, len(pods))
	for _, pod := range pods {
		request, err := resources.ForIncomingPod(v.table, pod)
		if err != nil {
			return nil, false, err
		}
		home := v.homes[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		placements = append(placements, placement{pod: pod, request: request, node: home})
	}
	slices.SortStableFunc(placements, func(x, y placement) int {
		return cmp.Or(
			strings.Compare(y.node, x.node),
			cmp.Compare(y.request.Value(resources.CPU), x.request.Value(resources.CPU)),
			cmp.Compare(y.request.Value(resources.Memory), x.request.Value(resources.Memory)))
	})
	for _, choose := range []func(*placement, []string) string{v.bestFit, v.firstFit} {
		if plan, fits := v.place(placements, choose); fits {
			return plan, true, nil
		}
	}
	return nil, false, nil
}

// place chooses a node for each pod beside those before it. It returns false when one of them finds none.
func (v *view) place(placements []placement, choose func(p *placement,
	names []string) string,
) (plan []placement, fits bool) {
	plan = slices.Clone(placements)
	names := slices.Sorted(maps.Keys(v.nodes))
	placed := 0
	for ; placed < len(plan); placed++ {
		p := &plan[placed]
		if p.node == "" {
			p.node = choose(p, names)
		}
		if p.node == "" {
			break
		}
		v.nodes[p.node].use(&p.request)
	}
	for i := placed - 1; i >= 0; i-- {
		v.nodes[plan[i].node].giveBack(&plan[i].request)
	}
	return plan, placed == len(plan)
}

// firstFit returns the first node that has capacity for the pod, or "". It may place pods that bestFit does not.
func (v *view) firstFit(p *placement, names []string) string {
	for _, name := range names {
		if v.nodes[name].fits(p.pod, &p.request) {
			return name
		}
	}
	return ""
}

// bestFit returns the node that has capacity for the pod and the least CPU left, then the least memory,
// then the first name; or "".
func (v *view) bestFit(p *placement, names []string) string {
	best := ""
	for _, name := range names {
		n := v.nodes[name]
		if !n.fits(p.pod, &p.request) {
			continue
		}
		if best == "" || n.hasLessThan(v.nodes[best]) {
			best = name
		}
	}
	return best
}

func (n *viewNode) hasLessThan(other *viewNode) bool {
	return cmp.Or(
		cmp.Compare(n.free[resources.CPU], other.free[resources.CPU]),
		cmp.Compare(n.free[resources.Memory], other.free[resources.Memory])) < 0
}

// placedBefore returns how much of a resource the plan had taken on the node of a refused pod when the
// pod's turn came. Pods that were refused before it took nothing.
func placedBefore(
	plan []placement, r reserver.Rejection, column resources.Column, refused map[types.NamespacedName]bool,
) int64 {
	var sum int64
	for i := range plan {
		name := types.NamespacedName{Namespace: plan[i].pod.Namespace, Name: plan[i].pod.Name}
		if name.Namespace == r.Namespace && name.Name == r.Pod {
			break
		}
		if plan[i].node == r.Node && !refused[name] {
			sum, _ = resources.Add(sum, plan[i].request.Value(column))
		}
	}
	return sum
}
