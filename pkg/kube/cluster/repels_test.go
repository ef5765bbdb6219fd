package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// repelling makes a pod keep others away, by one term.
func repellingBy(term v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Name = "repels"
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term},
		}}
	}
}

// What a pod keeps away from where it is, as kube-scheduler has it.
func TestRepelled(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	named := func(namespace string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: namespace}}
	}
	hosts := v1.PodAffinityTerm{LabelSelector: web, TopologyKey: v1.LabelHostname}
	tests := map[string]struct {
		term    v1.PodAffinityTerm
		changes []func(*v1.Pod)
		want    []string // the nodes that are closed
	}{
		"host": {term: hosts, want: []string{"n1"}},
		"zone": {term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "zone"}, want: []string{"n1", "n2"}},
		"a label with an empty value": {
			term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "empty"}, want: []string{"n1", "n2", "n3"},
		},
		"a label that no node has": {term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "rack"}},
		"other pods": {term: v1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, TopologyKey: "zone",
		}},
		"all pods": {
			term: v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}, TopologyKey: "zone"},
			want: []string{"n1", "n2"},
		},
		"none":          {term: v1.PodAffinityTerm{TopologyKey: "zone"}},
		"of namespaces": {term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "zone", Namespaces: []string{"x"}}},
		"of any namespace": {
			term: v1.PodAffinityTerm{
				LabelSelector: web, TopologyKey: "zone", Namespaces: []string{"x"},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"any": "thing"}},
			},
			want: []string{"n1", "n2"},
		},
		"of a namespace by its name": {
			term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "zone", NamespaceSelector: named("x")},
		},
		"of its own by its name": {
			term: v1.PodAffinityTerm{
				LabelSelector: web, TopologyKey: "zone", Namespaces: []string{"x"}, NamespaceSelector: named("ns"),
			},
			want: []string{"n1", "n2"},
		},
		"of many namespaces": {
			term: v1.PodAffinityTerm{
				LabelSelector: web, TopologyKey: "zone", Namespaces: slices.Repeat([]string{"x"}, 2*maxPlaces),
			},
		},
		"of another namespace":       {term: hosts, changes: []func(*v1.Pod){func(p *v1.Pod) { p.Namespace = "x" }}},
		"one that has finished":      {term: hosts, changes: []func(*v1.Pod){phase(v1.PodFailed)}},
		"one that is being deleted":  {term: hosts, changes: []func(*v1.Pod){deleting}, want: []string{"n1"}},
		"one without a node":         {term: hosts, changes: []func(*v1.Pod){on("")}},
		"one on a node that is gone": {term: hosts, changes: []func(*v1.Pod){on("gone")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reader, pods, nodes := Reader{Table: resources.NewTable()}, NewPods(), NewNodes()
			for node, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
				nodes.Put(&Node{Name: node, Labels: map[string]string{v1.LabelHostname: node, "zone": zone, "empty": ""}})
			}
			closed := func() (list []string) {
				asks := reader.Compact(newPod(func(p *v1.Pod) { p.Labels = map[string]string{"app": "web"} }, "1"))
				for _, name := range []string{"n1", "n2", "n3"} {
					if node, _ := nodes.Node(name); pods.Repelled(asks, nodes)(node) {
						list = append(list, name)
					}
				}
				return list
			}
			repels := newPod(func(p *v1.Pod) {
				p.Spec.NodeName = "n1"
				repellingBy(test.term)(p)
				for _, change := range test.changes {
					change(p)
				}
			}, "1")
			pods.Put(reader.Compact(repels))
			assert.Equal(t, test.want, closed())
			pods.Remove(reader.Compact(repels))
			assert.Empty(t, closed())
			pods.repelling.id = 0
			assert.Equal(t, newRepelling(), pods.repelling, "nothing is left")
		})
	}
}

// What is kept of a pod is bounded. Beyond that any pod counts as kept away from its places.
func TestManyRepulsions(t *testing.T) {
	long := &metav1.LabelSelector{}
	for i := range 500 {
		long.MatchExpressions = append(long.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: fmt.Sprint("key-", i), Operator: metav1.LabelSelectorOpExists})
	}
	many := make([]v1.PodAffinityTerm, 1000)
	for i := range many {
		many[i] = v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}, TopologyKey: fmt.Sprint("key-", i%500)}
	}
	many[0].TopologyKey, many[1].TopologyKey = "zone", "zone"
	for name, terms := range map[string][]v1.PodAffinityTerm{
		"terms": many, "bytes": {{LabelSelector: long, TopologyKey: "zone"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods, nodes := NewPods(), NewNodes()
			nodes.Put(&Node{Name: "n", Labels: map[string]string{"zone": "a"}})
			repels := newPod(func(p *v1.Pod) {
				p.Namespace, p.Spec.NodeName = "other", "n"
				repellingBy(v1.PodAffinityTerm{})(p)
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
			}, "1")
			r := Reader{Table: resources.NewTable()}.Compact(repels)
			assert.LessOrEqual(t, len(r.repels), maxRepulsions)
			pods.Put(r)
			node, _ := nodes.Node("n")
			assert.True(t, pods.Repelled(Reader{Table: resources.NewTable()}.Compact(newPod(nil, "1")), nodes)(node))
		})
	}
}

// A pod without a node that must not be with its own kind can be judged by its node, the ledger, and what it clashes
// with. One whose anti-affinity reaches further cannot.
func TestClashes(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	reader := Reader{Table: resources.NewTable()}
	tests := map[string]struct {
		term    v1.PodAffinityTerm
		decides bool
		want    []string
	}{
		"its own kind": {
			term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: v1.LabelHostname}, decides: true,
			want: []string{"ns/app=web"},
		},
		"of namespaces": {
			term: v1.PodAffinityTerm{
				LabelSelector: web, TopologyKey: v1.LabelHostname, Namespaces: []string{"a", "ns"},
			},
			decides: true, want: []string{"a/app=web", "ns/app=web"},
		},
		"of all namespaces": {
			term: v1.PodAffinityTerm{
				LabelSelector: web, TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
			},
			decides: true, want: []string{"/app=web"},
		},
		"by zone": {term: v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "zone"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := reader.Compact(newPod(func(p *v1.Pod) {
				p.Spec.NodeName, p.Labels = "", web.MatchLabels
				repellingBy(test.term)(p)
			}, "1"))
			assert.Equal(t, test.decides, r.Constraints.NodesDecide())
			var got []string
			for namespace, selector := range r.Clashes() {
				got = append(got, namespace+"/"+selector.String())
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, len(test.want) > 0, r.HasClashes())
			pods := NewPods()
			pods.Put(r)
			assert.Equal(t, newRepelling(), pods.repelling, "it is nowhere yet")
		})
	}
	assert.False(t, reader.Compact(newPod(nil, "1")).HasClashes())
}

// Pods are alike that the same pods keep away, whatever their other labels are.
func TestRepelledAs(t *testing.T) {
	reader, pods := Reader{Table: resources.NewTable()}, NewPods()
	as := func(namespace string, labels map[string]string) string {
		return pods.RepelledAs(reader.Compact(newPod(func(p *v1.Pod) {
			p.Namespace, p.Labels, p.Spec.NodeName = namespace, labels, ""
		}, "1")))
	}
	web, db := map[string]string{"app": "web", "index": "1"}, map[string]string{"app": "db", "index": "2"}
	assert.Equal(t, as("ns", web), as("ns", db), "there are no such pods")
	repel := func(name string, selector map[string]string) {
		pods.Put(reader.Compact(newPod(func(p *v1.Pod) {
			p.Spec.NodeName = "n"
			repellingBy(v1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: selector}, TopologyKey: v1.LabelHostname,
			})(p)
			p.Name = name
		}, "1")))
	}
	repel("web", map[string]string{"app": "web"})
	assert.NotEqual(t, as("ns", web), as("ns", db))
	assert.Equal(t, as("ns", web), as("ns", map[string]string{"app": "web", "index": "3"}))
	assert.Equal(t, as("other", web), as("other", db), "they mean pods of their own namespace")
	repel("db", map[string]string{"app": "db"})
	assert.NotEqual(t, as("ns", web), as("ns", db))
	for i := range maxCompared {
		repel(fmt.Sprint("more-", i), map[string]string{"app": fmt.Sprint(i)})
	}
	assert.NotEqual(t, as("ns", web), as("ns", map[string]string{"app": "web", "index": "3"}), "too many to compare")
}

func TestIsApartFrom(t *testing.T) {
	reader := Reader{Table: resources.NewTable()}
	waits := func(app string, change func(*v1.Pod)) *Pod {
		return reader.Compact(newPod(func(p *v1.Pod) {
			p.Spec.NodeName, p.Labels = "", map[string]string{"app": app}
			if change != nil {
				change(p)
			}
		}, "1"))
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	repels := waits("db", repellingBy(v1.PodAffinityTerm{LabelSelector: web, TopologyKey: "zone"}))
	node := &Node{Name: "n", Labels: map[string]string{"zone": "a"}}
	assert.True(t, repels.IsApartFrom(waits("web", nil), node))
	assert.True(t, waits("web", nil).IsApartFrom(repels, node))
	assert.False(t, repels.IsApartFrom(waits("db", nil), node))
	assert.False(t, repels.IsApartFrom(waits("web", nil), &Node{Name: "n"}))
}

// A term without a selector means no pod, and one with an empty selector means all. Terms that differ are told apart.
func TestRepelledByOneOfTwoTerms(t *testing.T) {
	has := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: key, Operator: metav1.LabelSelectorOpExists,
		}}}
	}
	for name, terms := range map[string][2]v1.PodAffinityTerm{
		"none and all": {
			{TopologyKey: v1.LabelHostname}, {TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{}},
		},
		"slashes": {
			{TopologyKey: "hostname", LabelSelector: has("app/kubernetes.io")},
			{TopologyKey: v1.LabelHostname, LabelSelector: has("app")},
		},
	} {
		pods, nodes, reader := NewPods(), NewNodes(), Reader{Table: resources.NewTable()}
		node := &Node{Name: "n", Labels: map[string]string{v1.LabelHostname: "n", "hostname": "n"}}
		nodes.Put(node)
		for k, on := range []string{"elsewhere", "n"} {
			terms[k].NamespaceSelector = &metav1.LabelSelector{}
			pods.Put(reader.Compact(newPod(func(p *v1.Pod) {
				repellingBy(terms[k])(p)
				p.Name, p.Spec.NodeName = fmt.Sprint(k), on
			}, "1")))
		}
		asks := reader.Compact(newPod(func(p *v1.Pod) {
			p.Name, p.Spec.NodeName, p.Labels = "asks", "", map[string]string{"app": "x"}
		}, "1"))
		assert.True(t, pods.Repelled(asks, nodes)(node), name)
		pods.Remove(reader.Compact(newPod(func(p *v1.Pod) { p.Name = "1" }, "1")))
		assert.False(t, pods.Repelled(asks, nodes)(node), name)
	}
}
