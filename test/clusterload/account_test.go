package clusterload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

const gpu = corev1.ResourceName("example.com/gpu")

func list(amounts ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		l[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return l
}

// newNode makes a node with capacity for 10 pods and the given amounts of names and quantities in turn.
func newNode(name string, amounts ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Status:     corev1.NodeStatus{Allocatable: list(append([]string{"pods", "10"}, amounts...)...)},
	}
}

func newPod(name, node string, amounts ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: corev1.PodSpec{
			NodeName: node, SchedulerName: "s",
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list(amounts...)}}},
		},
	}
}

func with(pod *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }

func inGang(name string, size int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { gangsched.Mark(pod, name, size) }
}

// podGone and nodeGone are deletions: of the pod of a UID, and of the node of a name.
type (
	podGone  types.UID
	nodeGone string
)

func feed(t *testing.T, a *account, events ...any) []excess {
	t.Helper()
	var found []excess
	for _, event := range events {
		switch event := event.(type) {
		case *corev1.Node:
			found = append(found, a.setNode(event)...)
		case *corev1.Pod:
			found = append(found, a.setPod(event)...)
		case nodeGone:
			a.removeNode(string(event))
		case podGone:
			found = append(found, a.removePod(types.UID(event))...)
		default:
			require.Fail(t, "not an object that is watched")
		}
	}
	return found
}

func TestOvercommitIsFound(t *testing.T) {
	over := func(resource string, used, allocatable int64) excess {
		return excess{node: "n", resource: corev1.ResourceName(resource), used: used, allocatable: allocatable}
	}
	n := newNode("n", "cpu", "4")
	cases := map[string]struct {
		events []any
		want   []excess
		last   int // overcommitted nodes in the end
	}{
		"full is not over": {events: []any{n, newPod("a", "n", "cpu", "4")}},
		"one milli-CPU too much": {
			events: []any{n, newPod("a", "n", "cpu", "4"), newPod("b", "n", "cpu", "1m")},
			want:   []excess{over("cpu", 4001, 4000)}, last: 1,
		},
		"for a moment only": {
			events: []any{n, newPod("a", "n", "cpu", "5"), podGone("uid-a")},
			want:   []excess{over("cpu", 5000, 4000)},
		},
		"each amount once, and again when it comes back": {
			events: []any{
				n, newPod("a", "n", "cpu", "5"), newPod("a", "n", "cpu", "5"), newPod("b", "n", "cpu", "1"), podGone("uid-a"),
				newPod("c", "n", "cpu", "4"),
			},
			want: []excess{over("cpu", 5000, 4000), over("cpu", 6000, 4000), over("cpu", 5000, 4000)}, last: 1,
		},
		"memory, a device and the pod count": {
			events: []any{
				newNode("n", "memory", "1Ki", "example.com/gpu", "1", "pods", "1"),
				newPod("a", "n", "memory", "1Ki", "example.com/gpu", "1"),
				newPod("b", "n", "memory", "1", "example.com/gpu", "1"),
			},
			want: []excess{over("example.com/gpu", 2, 1), over("memory", 1025, 1024), over("pods", 2, 1)}, last: 1,
		},
		"finished pods use nothing": {
			events: []any{
				n, with(newPod("a", "n", "cpu", "4"), phase(corev1.PodSucceeded)),
				with(newPod("b", "n", "cpu", "4"), phase(corev1.PodFailed)), newPod("c", "n", "cpu", "4"),
			},
		},
		"terminating pods do": {
			events: []any{n, with(newPod("a", "n", "cpu", "4"), terminating), newPod("b", "n", "cpu", "1")},
			want:   []excess{over("cpu", 5000, 4000)}, last: 1,
		},
		"a pod that finishes makes capacity": {
			events: []any{
				n, newPod("a", "n", "cpu", "4"), with(newPod("a", "n", "cpu", "4"), phase(corev1.PodSucceeded)),
				newPod("b", "n", "cpu", "4"),
			},
		},
		"a node that shrinks": {
			events: []any{n, newPod("a", "n", "cpu", "4"), newNode("n", "cpu", "3")},
			want:   []excess{over("cpu", 4000, 3000)}, last: 1,
		},
		"a node that comes later than its pods": {
			events: []any{newPod("a", "n", "cpu", "5"), n},
			want:   []excess{over("cpu", 5000, 4000)}, last: 1,
		},
		"a node that is gone offers nothing to overcommit": {events: []any{n, nodeGone("n"), newPod("a", "n", "cpu", "5")}},
		"pending pods use nothing":                         {events: []any{n, newPod("a", "", "cpu", "5")}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount()
			assert.Equal(t, test.want, feed(t, a, test.events...))
			assert.Equal(t, test.last, a.overcommitted())
		})
	}
}

func TestRebindsAreFound(t *testing.T) {
	a := newAccount()
	feed(t, a, newPod("a", ""), newPod("a", "n"), newPod("a", "n"), newPod("a", "m"))
	assert.Equal(t, []string{`default/a from "n" to "m"`}, a.rebinds)
}

func TestKubeletWouldRefuse(t *testing.T) {
	a := newAccount()
	feed(t, a,
		newNode("n", "cpu", "4"), newPod("first", "n", "cpu", "2"),
		newPod("second", "n", "cpu", "2"), newPod("third", "n", "cpu", "2"), newPod("empty", "n"),
		// A kubelet has failed the third pod by now: it uses nothing there.
		podGone("uid-first"), newPod("fourth", "n", "cpu", "2"),
		newPod("third", "n", "cpu", "2"),
	)
	refused := map[string]bool{}
	for _, p := range a.pods {
		refused[p.pod.Name] = p.refused
	}
	assert.Equal(t, map[string]bool{"second": false, "third": true, "fourth": false, "empty": false}, refused)
}

func TestFittingPods(t *testing.T) {
	port := func(pod *corev1.Pod) { pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	gated := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}} }
	selective := func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "fast"} }
	tainted := newNode("n", "cpu", "4")
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	cordoned := newNode("n", "cpu", "4")
	cordoned.Spec.Unschedulable = true
	n := newNode("n", "cpu", "4")
	cases := map[string]struct {
		objects []any
		want    []string
	}{
		"capacity for it": {objects: []any{n, newPod("p", "", "cpu", "4")}, want: []string{"p"}},
		"each by itself": {
			objects: []any{n, newPod("p", "", "cpu", "4"), newPod("q", "", "cpu", "4")},
			want:    []string{"p", "q"},
		},
		"too little":            {objects: []any{n, newPod("x", "n", "cpu", "1"), newPod("p", "", "cpu", "4")}},
		"no such device":        {objects: []any{n, newPod("p", "", string(gpu), "1")}},
		"no node":               {objects: []any{newPod("p", "", "cpu", "1")}},
		"a node that is gone":   {objects: []any{newPod("x", "n"), newPod("p", "", "cpu", "1")}},
		"taint":                 {objects: []any{tainted, newPod("p", "", "cpu", "1")}},
		"cordon":                {objects: []any{cordoned, newPod("p", "", "cpu", "1")}},
		"selector":              {objects: []any{n, with(newPod("p", "", "cpu", "1"), selective)}},
		"host port taken":       {objects: []any{n, with(newPod("x", "n"), port), with(newPod("p", ""), port)}},
		"going away, or gated":  {objects: []any{n, with(newPod("p", ""), terminating), with(newPod("q", ""), gated)}},
		"a bound pod never is":  {objects: []any{n, newPod("p", "n", "cpu", "1")}},
		"an overcommitted node": {objects: []any{n, newPod("x", "n", "cpu", "5"), newPod("p", "", "cpu", "1")}},
		"a gang whole": {
			objects: []any{
				n, newNode("m", "cpu", "2"), with(newPod("p", "", "cpu", "4"), inGang("g", 2)),
				with(newPod("q", "", "cpu", "2"), inGang("g", 2)),
			},
			want: []string{"p", "q"},
		},
		"a gang that fits in part": {objects: []any{
			n, with(newPod("p", "", "cpu", "3"), inGang("g", 2)), with(newPod("q", "", "cpu", "2"), inGang("g", 2)),
		}},
		"a gang that is not complete": {objects: []any{n, with(newPod("p", "", "cpu", "1"), inGang("g", 2))}},
		"the rest of a gang": {
			objects: []any{
				n, with(newPod("p", "n", "cpu", "2"), inGang("g", 2)), with(newPod("q", "", "cpu", "2"), inGang("g", 2)),
			},
			want: []string{"q"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount()
			feed(t, a, test.objects...)
			var got []string
			for _, p := range a.fittingPods() {
				got = append(got, p.Name)
			}
			assert.Equal(t, test.want, got)
		})
	}
}
