package resources

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func selects(labels ...string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		selector.MatchLabels[labels[i]] = labels[i+1]
	}
	return selector
}

// podApart is the pod ns/p with the label app=web, and required anti-affinity.
func podApart(terms ...v1.PodAffinityTerm) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", Labels: map[string]string{"app": "web", "tier": "1"},
		},
		Spec: v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: terms,
		}}},
	}
}

// Terms count like host ports where two pods with the same term cannot be on one node, whatever else they are.
func TestApart(t *testing.T) {
	web := selects("app", "web")
	host := v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: web}
	with := func(change func(*v1.PodAffinityTerm)) v1.PodAffinityTerm {
		term := host
		change(&term)
		return term
	}
	in := func(namespaces ...string) v1.PodAffinityTerm {
		return with(func(term *v1.PodAffinityTerm) { term.Namespaces = namespaces })
	}
	of := func(labels ...string) v1.PodAffinityTerm {
		return with(func(term *v1.PodAffinityTerm) { term.LabelSelector = selects(labels...) })
	}
	tests := map[string]struct {
		terms  []v1.PodAffinityTerm
		want   []string
		others bool // there are terms that do not count
	}{
		"none":         {},
		"its own kind": {terms: []v1.PodAffinityTerm{host}, want: []string{"ns/app=web"}},
		"in any order": {
			terms: []v1.PodAffinityTerm{of("tier", "1", "app", "web")},
			want:  []string{"ns/app=web,tier=1"},
		},
		"all pods": {terms: []v1.PodAffinityTerm{of()}, want: []string{"ns/"}},
		"of namespaces in any order": {
			terms: []v1.PodAffinityTerm{in("z", "ns", "a", "z")},
			want:  []string{"a,ns,z/app=web"},
		},
		"of its own by name":   {terms: []v1.PodAffinityTerm{in("ns")}, want: []string{"ns/app=web"}},
		"of another namespace": {terms: []v1.PodAffinityTerm{in("other")}, others: true},
		"other pods":           {terms: []v1.PodAffinityTerm{of("app", "db")}, others: true},
		"one that counts beside one not": {
			terms:  []v1.PodAffinityTerm{host, of("app", "db")},
			want:   []string{"ns/app=web"},
			others: true,
		},
		"two": {
			terms: []v1.PodAffinityTerm{host, of("tier", "1")},
			want:  []string{"ns/app=web", "ns/tier=1"},
		},
		"no selector, which means no pod": {
			terms:  []v1.PodAffinityTerm{with(func(term *v1.PodAffinityTerm) { term.LabelSelector = nil })},
			others: true,
		},
		"of zones": {
			terms:  []v1.PodAffinityTerm{with(func(term *v1.PodAffinityTerm) { term.TopologyKey = v1.LabelTopologyZone })},
			others: true,
		},
		"of all namespaces": {
			terms: []v1.PodAffinityTerm{with(func(term *v1.PodAffinityTerm) {
				term.NamespaceSelector, term.Namespaces = selects(), []string{"other"}
			})},
			want: []string{"*/app=web"},
		},
		"of namespaces by their labels": {
			terms:  []v1.PodAffinityTerm{with(func(term *v1.PodAffinityTerm) { term.NamespaceSelector = selects("team", "a") })},
			others: true,
		},
		"a long one": {
			terms: []v1.PodAffinityTerm{with(func(term *v1.PodAffinityTerm) {
				term.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", strings.Repeat("w", maxTerm)}},
				}}
			})},
			others: true,
		},
		"many": {
			terms: append(make([]v1.PodAffinityTerm, 0), host, host, host, host, host, host, host, host, host),
			want:  strings.Split(strings.Repeat(" ns/app=web", maxTerms)[1:], " "), others: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ports, all := Apart(podApart(test.terms...))
			var got []string
			for _, port := range ports {
				assert.True(t, port.IsTerm())
				got = append(got, port.IP)
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.others, !all)
		})
	}
}

// What a pod asks for has its terms beside its host ports. What is kept for one to come has not.
func TestTermsAreNoCapacity(t *testing.T) {
	table := NewTable()
	pod := podApart(v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: selects("app", "web")})
	pod.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}
	incoming, err := ForIncomingPod(table, pod)
	assert.NoError(t, err)
	bound := ForBoundPod(table, pod)
	assert.Len(t, bound.Ports, 2)
	assert.Equal(t, bound.Ports, incoming.Ports)
	assert.False(t, bound.Ports[1].CollidesWith(incoming.Ports[1]), "that is for their schedulers to see to")
	kept := incoming.Kept()
	assert.Equal(t, bound.Ports[:1], kept.Ports[:1])
	assert.True(t, bound.Ports[1].CollidesWith(kept.Ports[1]))
	assert.True(t, kept.Ports[1].CollidesWith(bound.Ports[1]))
	assert.True(t, kept.Ports[1].CollidesWith(kept.Ports[1]))
	assert.False(t, incoming.Ports[1].Kept)
	assert.Equal(t, bound.Ports[:1], bound.Capacity().Ports)
	assert.Equal(t, bound.Ports[:1], CapacityOf(table, &bound).Ports)
	assert.Len(t, bound.Ports, 2)
	without := bound.Capacity()
	assert.Same(t, without, without.Capacity())
	assert.Same(t, without, without.Kept())
}
