//go:build e2e

package gangs

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// apart has a pod be on no node with another one that is.
func apart(pod *corev1.Pod) {
	pod.Labels = map[string]string{"app": "apart"}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels}, TopologyKey: corev1.LabelHostname,
		}},
	}}
}

// Two gangs whose pods keep each other away have as many nodes as one of them needs, and kube-scheduler tries a pod of
// one and a pod of the other in turn. One gang is whole in the end, and nothing of the other is bound.
func TestGangsThatKeepEachOtherAway(t *testing.T) {
	const size = 4
	c := newCluster(t, size, long)
	var pods []*corev1.Pod
	for i := range size {
		for _, name := range []string{"a", "b"} {
			pods = append(pods, testbed.NewPod(fmt.Sprintf("%s-%d", name, i), singles, "500m",
				inGang(name, strconv.Itoa(size)), apart))
		}
	}
	c.Create(pods...)
	c.startKubeScheduler()
	c.awaitGangs(map[string]int{"Whole": 1, "Waiting": 1, "Starting": 0, "Short": 0})
	nodes := map[string]string{} // of the pods that are bound, by node
	for _, pod := range c.Pods() {
		if node := pod.Spec.NodeName; node != "" {
			nodes[node] += pod.Annotations[gangAnnotation]
		}
	}
	assert.Len(t, nodes, size)
	for _, gang := range nodes {
		assert.Equal(t, nodes[c.nodes[0]], gang)
	}
	c.requireNothingKept()
}

// The server binds what a scheduler leaves of a gang whose pods keep each other away, each to a node of its own.
func TestServerBindsPodsApart(t *testing.T) {
	c := newCluster(t, 3, long)
	for i := range 3 {
		c.Create(testbed.NewPod(fmt.Sprint("gang-", i), byHand, "1", inGang("gang", "3"), apart))
	}
	c.bindSoon("gang-0")
	c.awaitGangs(map[string]int{"Whole": 1})
	nodes := map[string]bool{}
	for _, pod := range c.Pods() {
		nodes[pod.Spec.NodeName] = true
	}
	assert.Len(t, nodes, 3)
	assert.Equal(t, 2, c.Metric("globalreserve_gang_bindings_total", "result", "bound"))
}

// awaitGangs waits until there are so many gangs in some states.
func (c *cluster) awaitGangs(want map[string]int) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		for state, count := range want {
			assert.Equal(t, count, c.Metric("globalreserve_gangs", "state", state), state)
		}
	})
}
