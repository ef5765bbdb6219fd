package resources

import (
	"hash/fnv"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// antiAffinity is the protocol of a HostPort that is none: its IP is a term of required anti-affinity, and its port a
// hash of that.
const antiAffinity v1.Protocol = "AntiAffinity"

// The most terms of a pod that count, and the most bytes and namespaces of each. The pod's author chooses the terms,
// and the pods that each means in each namespace are read live.
const (
	maxTerms  = 8
	maxTerm   = 512
	maxPlaces = 4
)

// IsTerm reports whether it is no port, but a term of required anti-affinity.
func (p HostPort) IsTerm() bool { return p.Protocol == antiAffinity }

// Apart returns what the required anti-affinity of a pod counts as on its node: a HostPort for each term that is about
// nodes (kubernetes.io/hostname) and means the pod itself, as it then means every other pod with the same term, too.
// Two such pods cannot be on one node, like two with the same port. But their schedulers have to see to that, and
// no kubelet does: terms matter only where capacity is kept for a pod (Request.Kept), which is of no use to it beside
// another one. all is false where the pod has other terms, or such that go by the labels of namespaces.
func Apart(pod *v1.Pod) (ports []HostPort, all bool) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil, true
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	all = len(terms) <= maxTerms
	for i := range terms[:min(len(terms), maxTerms)] {
		text, ok := apart(pod, &terms[i])
		if !ok {
			all = false
			continue
		}
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(text))
		key := PortKey{Protocol: antiAffinity, Port: int32(hash.Sum32())} //nolint:gosec // any number will do
		ports = append(ports, HostPort{PortKey: key, IP: text})
	}
	return ports, all
}

// apart puts a term in words that are the same for each pod that has it, if it is one that counts.
func apart(pod *v1.Pod, term *v1.PodAffinityTerm) (text string, ok bool) {
	by, named := term.NamespaceSelector, len(term.Namespaces) > 0
	if term.TopologyKey != v1.LabelHostname || term.Size() > maxTerm || len(term.Namespaces) > maxPlaces ||
		by != nil && len(by.MatchLabels)+len(by.MatchExpressions) > 0 ||
		by == nil && named && !slices.Contains(term.Namespaces, pod.Namespace) {
		return "", false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return "", false
	}
	namespaces := pod.Namespace
	switch {
	case by != nil: // an empty one, which is all
		namespaces = "*"
	case named:
		namespaces = strings.Join(slices.Compact(slices.Sorted(slices.Values(term.Namespaces))), ",")
	}
	return namespaces + "/" + selector.String(), true
}
