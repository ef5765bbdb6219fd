package cluster

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Bounds of what is kept of the anti-affinity of a pod. Where it asks for more than maxRepulsions terms, or maxChoice
// bytes, any pod counts as kept away. A pod that names more than maxPlaces namespaces is looked at for all of them.
const (
	maxRepulsions = 8
	maxPlaces     = 8
)

// repulsion is a required anti-affinity term of a pod: no pod that it matches may be where the pod is.
type repulsion struct {
	namespaces []string // nil: any
	selector   labels.Selector
	key        string // of the label by which nodes are one place
}

// repulsionsOf returns what a pod keeps away; nil for nearly all pods.
func repulsionsOf(pod *v1.Pod) (list []repulsion) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	size := 0
	for i := range terms {
		size += terms[i].Size()
	}
	for i := range terms {
		r := repulsion{selector: labels.Everything(), key: clip(terms[i].TopologyKey, maxText)}
		switch {
		case len(terms) <= maxRepulsions && size <= maxChoice:
			r = repulsionOf(pod.Namespace, &terms[i])
		case slices.ContainsFunc(list, func(o repulsion) bool { return o.key == r.key }) || len(list) == maxRepulsions:
			continue
		}
		list = append(list, r)
	}
	return list
}

// repulsionOf reads one term. It is not known here which labels namespaces have, but for their names. A term that
// goes by others matches pods of any namespace. So does one that cannot be read, which the API server does not accept.
func repulsionOf(namespace string, term *v1.PodAffinityTerm) repulsion {
	r := repulsion{key: term.TopologyKey, namespaces: term.Namespaces}
	var err error
	if r.selector, err = metav1.LabelSelectorAsSelector(term.LabelSelector); err != nil {
		r.selector = labels.Everything()
	}
	switch by := term.NamespaceSelector; {
	case by == nil && len(r.namespaces) == 0:
		r.namespaces = []string{namespace}
	case by == nil:
	case len(by.MatchExpressions) == 0 && len(by.MatchLabels) == 1 && by.MatchLabels[v1.LabelMetadataName] != "":
		r.namespaces = append(slices.Clone(r.namespaces), by.MatchLabels[v1.LabelMetadataName])
	default:
		r.namespaces = nil
	}
	return r
}

// matches reports whether the term means a pod.
func (r *repulsion) matches(pod *Pod) bool {
	return (r.namespaces == nil || slices.Contains(r.namespaces, pod.Ref.Namespace)) &&
		r.selector.Matches(labels.Set(pod.Labels))
}

// repelling are the pods with a node that keep others away, kept in step with the pods by Pods.list: those that do so
// from their node by that, and those that do so from more by the namespaces of the others; "" is any.
type repelling struct {
	of   map[podKey]*Pod
	on   map[string]map[podKey]*Pod
	wide map[string]map[podKey]*Pod
}

func newRepelling() repelling {
	return repelling{map[podKey]*Pod{}, map[string]map[podKey]*Pod{}, map[string]map[podKey]*Pod{}}
}

// set takes in the state of the pod of a name; r is nil where it is gone.
func (s *repelling) set(k podKey, r *Pod) {
	if held := s.of[k]; held != nil {
		delete(s.of, k)
		remove(s.on, held.Node, k)
		for _, namespace := range held.repelsIn() {
			remove(s.wide, namespace, k)
		}
	}
	if r == nil || len(r.repels) == 0 || r.Finished {
		return
	}
	s.of[k] = r
	if slices.ContainsFunc(r.repels, func(r repulsion) bool { return r.key == v1.LabelHostname }) {
		add(s.on, r.Node, k, r)
	}
	for _, namespace := range r.repelsIn() {
		add(s.wide, namespace, k, r)
	}
}

func add(in map[string]map[podKey]*Pod, at string, k podKey, r *Pod) {
	if in[at] == nil {
		in[at] = map[podKey]*Pod{}
	}
	in[at][k] = r
}

func remove(in map[string]map[podKey]*Pod, at string, k podKey) {
	if delete(in[at], k); len(in[at]) == 0 {
		delete(in, at)
	}
}

// repelsIn returns the namespaces whose pods a pod keeps away from more than its node.
func (i *Pod) repelsIn() (namespaces []string) {
	for _, r := range i.repels {
		switch {
		case r.key == v1.LabelHostname:
		case r.namespaces == nil:
			return []string{""}
		default:
			namespaces = append(namespaces, r.namespaces...)
		}
	}
	if len(namespaces) > maxPlaces {
		return []string{""}
	}
	return namespaces
}

// Repelled reports whether pods keep another one, which has no node, away from a node, as kube-scheduler's
// InterPodAffinity has it (satisfyExistingPodsAntiAffinity).
func (s *Pods) Repelled(pod *Pod, node *Node, nodes *Nodes) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	by := func(other *Pod, there *Node) bool {
		return slices.ContainsFunc(other.repels, func(r repulsion) bool {
			here, ok := node.Labels[r.key]
			at, known := there.Labels[r.key]
			return ok && known && here == at && r.matches(pod)
		})
	}
	for _, other := range s.repelling.on[node.Name] {
		if by(other, node) {
			return true
		}
	}
	for _, namespace := range []string{"", pod.Ref.Namespace} {
		for _, other := range s.repelling.wide[namespace] {
			if there, ok := nodes.Node(other.Node); ok && by(other, there) {
				return true
			}
		}
	}
	return false
}
