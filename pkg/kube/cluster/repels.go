package cluster

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
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

// repulsionsOf returns what a pod keeps away; nil for nearly all pods. A term without a selector means no pod.
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
		r := repulsion{selector: labels.Everything(), key: kinds.Clip(terms[i].TopologyKey, maxText)}
		switch {
		case terms[i].LabelSelector == nil:
			continue
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

// places returns the namespaces of the pods that the term means; "" is any.
func (r *repulsion) places() []string {
	if r.namespaces == nil || len(r.namespaces) > maxPlaces {
		return []string{""}
	}
	return r.namespaces
}

// text is the same for terms that mean the same.
func (r *repulsion) text() string {
	return strings.Join(r.namespaces, ",") + "\x00" + r.selector.String() + "\x00" + r.key
}

// repelling are the terms of the pods with a node, kept in step with the pods by Pods.list. Pods of one kind have the
// same terms, so that there are far fewer terms than pods.
type repelling struct {
	of    map[podKey]*Pod
	terms map[string]*repelled            // by text
	in    map[string]map[string]*repelled // by the namespaces of the pods that they mean, "" is any, and text
	id    int                             // that was given last
}

// repelled is a term, and on which nodes how many pods have it.
type repelled struct {
	repulsion

	id int
	on map[string]int
}

func newRepelling() repelling {
	return repelling{of: map[podKey]*Pod{}, terms: map[string]*repelled{}, in: map[string]map[string]*repelled{}}
}

// set records the state of the pod of a name; r is nil where it is gone.
func (s *repelling) set(k podKey, r *Pod) {
	if held := s.of[k]; held != nil {
		delete(s.of, k)
		for i := range held.repels {
			s.count(&held.repels[i], held.Node, -1)
		}
	}
	if r == nil || len(r.repels) == 0 || !r.Bound() {
		return
	}
	s.of[k] = r
	for i := range r.repels {
		s.count(&r.repels[i], r.Node, 1)
	}
}

// count counts a pod with a term on a node, or takes it off.
func (s *repelling) count(r *repulsion, node string, by int) {
	text := r.text()
	t := s.terms[text]
	if t == nil {
		s.id++
		t = &repelled{repulsion: *r, id: s.id, on: map[string]int{}}
		s.terms[text] = t
		for _, namespace := range t.places() {
			if s.in[namespace] == nil {
				s.in[namespace] = map[string]*repelled{}
			}
			s.in[namespace][text] = t
		}
	}
	if t.on[node] += by; t.on[node] == 0 {
		delete(t.on, node)
	}
	if len(t.on) > 0 {
		return
	}
	delete(s.terms, text)
	for _, namespace := range t.places() {
		if delete(s.in[namespace], text); len(s.in[namespace]) == 0 {
			delete(s.in, namespace)
		}
	}
}

// matching returns the terms that mean a pod.
func (s *repelling) matching(pod *Pod) (list []*repelled) {
	for _, namespace := range []string{"", pod.Ref.Namespace} {
		for _, t := range s.in[namespace] {
			if t.matches(pod) {
				list = append(list, t)
			}
		}
	}
	return list
}

// Repelled returns a function that reports whether pods keep another one, which has no node, away from a node, as
// kube-scheduler's InterPodAffinity does (satisfyExistingPodsAntiAffinity).
func (s *Pods) Repelled(pod *Pod, nodes *Nodes) func(node *Node) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var hosts []*repelled
	closed := map[string]map[string]bool{} // by label, and its value
	for _, t := range s.repelling.matching(pod) {
		if t.key == v1.LabelHostname {
			hosts = append(hosts, t)
			continue
		}
		if closed[t.key] == nil {
			closed[t.key] = map[string]bool{}
		}
		for name := range t.on {
			if there, ok := nodes.Node(name); ok {
				if value, ok := there.Labels[t.key]; ok {
					closed[t.key][value] = true
				}
			}
		}
	}
	return func(node *Node) bool {
		for key, values := range closed {
			if here, ok := node.Labels[key]; ok && values[here] {
				return true
			}
		}
		_, named := node.Labels[v1.LabelHostname]
		return named && len(hosts) > 0 && s.anyOn(hosts, node.Name)
	}
}

// anyOn reports whether a pod on a node has one of some terms.
func (s *Pods) anyOn(terms []*repelled, node string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(terms, func(t *repelled) bool { return t.on[node] > 0 })
}

// maxCompared is how many terms a pod is compared with to find which pods are alike.
const maxCompared = 256

// RepelledAs returns a text that is the same for pods of a namespace which the same pods keep away.
func (s *Pods) RepelledAs(pod *Pod) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch in := s.repelling.in; {
	case len(s.repelling.terms) == 0:
		return ""
	case len(in[""])+len(in[pod.Ref.Namespace]) > maxCompared:
		return labels.Set(pod.Labels).String()
	}
	var ids []int
	for _, t := range s.repelling.matching(pod) {
		ids = append(ids, t.id)
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
}

// HasClashes reports whether there are pods that a pod must not be with on a node, going by its own anti-affinity.
func (i *Pod) HasClashes() bool {
	return slices.ContainsFunc(i.repels, func(r repulsion) bool { return r.key == v1.LabelHostname })
}

// Clashes yields selectors of these pods, by namespace, where "" is all.
func (i *Pod) Clashes() iter.Seq2[string, labels.Selector] {
	return func(yield func(string, labels.Selector) bool) {
		for k := range i.repels {
			r := &i.repels[k]
			namespaces := r.namespaces
			if namespaces == nil {
				namespaces = []string{""}
			}
			for _, namespace := range namespaces {
				if r.key == v1.LabelHostname && !yield(namespace, r.selector) {
					return
				}
			}
		}
	}
}

// IsApartFrom reports whether one of two pods must not be on a node that the other one is being bound to.
func (i *Pod) IsApartFrom(other *Pod, node *Node) bool {
	means := func(pod *Pod) func(r repulsion) bool {
		return func(r repulsion) bool {
			_, has := node.Labels[r.key]
			return has && r.matches(pod)
		}
	}
	return slices.ContainsFunc(i.repels, means(other)) || slices.ContainsFunc(other.repels, means(i))
}
