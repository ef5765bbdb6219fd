package gangsched

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func change(pod *corev1.Pod, how func(*corev1.Pod)) *corev1.Pod {
	how(pod)
	return pod
}

func TestPlan(t *testing.T) {
	port := func(pod *corev1.Pod) { pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	tainted := testNode("tainted", "1")
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := testNode("cordoned", "1")
	cordoned.Spec.Unschedulable = true
	labeled := testNode("labeled", "8")
	labeled.Labels = map[string]string{"disk": "fast"}
	cases := map[string]struct {
		nodes []*corev1.Node
		bound []*corev1.Pod
		pods  []*corev1.Pod
		want  map[string]string // nil: no capacity
	}{
		"the node with least capacity left": {
			nodes: []*corev1.Node{testNode("big", "8"), testNode("small", "2")},
			pods:  []*corev1.Pod{testPod("p", "2")}, want: map[string]string{"p": "small"},
		},
		"pods of the plan count next to each other": {
			nodes: []*corev1.Node{testNode("a", "2"), testNode("b", "2")},
			pods:  []*corev1.Pod{testPod("p", "2"), testPod("q", "2")},
			want:  map[string]string{"p": "a", "q": "b"},
		},
		"the largest goes first": {
			nodes: []*corev1.Node{testNode("a", "3"), testNode("b", "2")},
			pods:  []*corev1.Pod{testPod("p", "2"), testPod("q", "3")},
			want:  map[string]string{"p": "b", "q": "a"},
		},
		"where the tightest nodes leave none for the last": {
			nodes: []*corev1.Node{testNode("a", "2500m"), testNode("b", "2")},
			pods:  []*corev1.Pod{testPod("p", "1500m"), testPod("q", "1"), testPod("r", "1"), testPod("s", "1")},
			want:  map[string]string{"p": "a", "q": "a", "r": "b", "s": "b"},
		},
		"one without capacity, all without": {
			nodes: []*corev1.Node{testNode("a", "3")},
			pods:  []*corev1.Pod{testPod("p", "2"), testPod("q", "2")},
		},
		"bound pods count, finished ones do not": {
			nodes: []*corev1.Node{testNode("a", "2"), testNode("b", "3")},
			bound: []*corev1.Pod{
				boundTo(testPod("x", "1"), "a"),
				change(boundTo(testPod("y", "3"), "b"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			},
			pods: []*corev1.Pod{testPod("p", "2")}, want: map[string]string{"p": "b"},
		},
		"cordon, taint and selector": {
			nodes: []*corev1.Node{tainted, cordoned, testNode("plain", "1"), labeled},
			pods: []*corev1.Pod{change(testPod("p", "1"), func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{"disk": "fast"}
			}), testPod("q", "1")},
			want: map[string]string{"p": "labeled", "q": "plain"},
		},
		"host ports, bound and planned": {
			nodes: []*corev1.Node{testNode("a", "8"), testNode("b", "9"), testNode("c", "10")},
			bound: []*corev1.Pod{change(boundTo(testPod("x", "1"), "a"), port)},
			pods:  []*corev1.Pod{change(testPod("p", "1"), port), change(testPod("q", "1"), port)},
			want:  map[string]string{"p": "b", "q": "c"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			nodeOf := func(pod *corev1.Pod) string { return pod.Spec.NodeName }
			v := newView(test.nodes, test.bound, nodeOf)
			plan, fits, err := v.plan(test.pods)
			require.NoError(t, err)
			assert.Equal(t, test.want != nil, fits)
			if fits {
				got := map[string]string{}
				for _, p := range plan {
					got[p.pod.Name] = p.node
				}
				assert.Equal(t, test.want, got)
			}
			assert.Equal(t, newView(test.nodes, test.bound, nodeOf).nodes, normalized(v.nodes),
				"planning leaves the view as it was")
		})
	}
}

// normalized makes empty and missing lists the same.
func normalized(nodes map[string]*viewNode) map[string]*viewNode {
	for _, n := range nodes {
		if len(n.ports) == 0 {
			n.ports = nil
		}
	}
	return nodes
}

func TestPlanRefusesImpossibleRequests(t *testing.T) {
	pod := testPod("p", "-1")
	_, _, err := newView(nil, nil, nil).plan([]*corev1.Pod{pod})
	assert.ErrorContains(t, err, "must not be negative")
}

func TestCollect(t *testing.T) {
	deleted := testGang("g", 2, "1")
	deleted[1].DeletionTimestamp = &metav1.Time{}
	finished := testGang("g", 2, "1")
	finished[1].Status.Phase = corev1.PodSucceeded
	gated := testGang("g", 2, "1")
	gated[1].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}}
	half := testGang("g", 2, "1")
	boundTo(half[0], "n")
	differ := testGang("g", 2, "1")
	Mark(differ[1], "g", 3)
	noSize := testGang("g", 1, "1")
	delete(noSize[0].Annotations, v1alpha1.GangMinAnnotation)
	zero := testGang("g", 0, "1")
	zero = append(zero, change(testPod("p", "1"), func(p *corev1.Pod) { Mark(p, "g", 0) }))

	cases := map[string]struct {
		pods     []*corev1.Pod
		complete bool
		waiting  []string
		err      string
	}{
		"all there":                       {pods: testGang("g", 2, "1"), complete: true, waiting: []string{"g-0", "g-1"}},
		"one missing":                     {pods: testGang("g", 2, "1")[:1], waiting: []string{"g-0"}},
		"one going away":                  {pods: deleted, waiting: []string{"g-0"}},
		"one finished":                    {pods: finished, waiting: []string{"g-0"}},
		"one not to be scheduled yet":     {pods: gated, waiting: []string{"g-0"}},
		"one bound already":               {pods: half, complete: true, waiting: []string{"g-1"}},
		"pods that differ about the size": {pods: differ, err: "make the annotation"},
		"no size":                         {pods: noSize, err: "set it to the number of pods"},
		"a size of zero":                  {pods: zero, err: "set it to the number of pods"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g, err := collect(test.pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.complete, g.complete())
			assert.Equal(t, test.waiting, names(g.waiting))
		})
	}
}
