//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A gang whose PodGroup needs members of several tasks gets capacity for these, whatever their names.
func TestGangOfTasks(t *testing.T) {
	c := newVolcanoCluster(t, 1, long)
	group := clusterload.VolcanoPodGroup(c.Namespace, "gang", 3)
	require.NoError(t, unstructured.SetNestedMap(group.Object, map[string]any{"actor": int64(2), "learner": int64(1)},
		"spec", "minTaskMember"))
	require.NoError(t, c.CreateObject(t.Context(), group, c.Namespace))
	create := func(name, task, cpu string) {
		c.CreatePod(name, byHand, cpu, testbed.Annotated(
			clusterload.VolcanoGroupAnnotation, "gang", "volcano.sh/task-spec", task))
	}
	for _, name := range []string{"actor-0", "actor-1", "actor-2"} {
		create(name, "actor", "1")
	}
	create("learner-0", "learner", "2")
	c.CreatePod("stranger", byHand, "1")
	c.bindSoon("actor-0")
	require.ErrorContains(t, c.bindNow(t.Context(), "stranger", c.nodes[0]), "too little cpu")
	c.bindSoon("actor-2", "learner-0")
	c.awaitGangs(map[string]int{"Whole": 1})
	require.ErrorContains(t, c.bindNow(t.Context(), "actor-1", c.nodes[0]), "too little cpu")
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

func ofGang(pod *corev1.Pod) { pod.Labels = testbed.Pairs(clusterload.PodGroupLabel, "gang") }

// A PodGroup that is whole needs more members. The first of these is bound only when there is capacity for all.
func TestPodGroupThatGrows(t *testing.T) {
	c := newCluster(t, 1, long)
	c.createPodGroup("gang", 2)
	c.CreatePod("old-0", byHand, "500m", ofGang)
	c.CreatePod("old-1", byHand, "500m", ofGang)
	c.CreatePod("stranger", byHand, "1")
	c.bindSoon("old-0", "old-1", "stranger")
	groups, err := c.Resource(clusterload.PodGroup(c.Namespace, "gang", 4), c.Namespace)
	require.NoError(t, err)
	_, err = groups.Patch(t.Context(), "gang", types.MergePatchType, []byte(`{"spec":{"minMember":4}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	c.awaitMinimum("gang", 4)
	c.CreatePod("new-0", byHand, "1500m", ofGang)
	c.CreatePod("new-1", byHand, "1500m", ofGang)
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.bindNow(c.T.Context(), "new-0", c.nodes[0]), "more pods of its gang need capacity")
	})
	c.awaitGangs(map[string]int{"Waiting": 1, "Short": 0})
	c.Delete("stranger")
	c.bindSoon("new-0", "new-1")
	c.awaitGangs(map[string]int{"Whole": 1})
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// Members that have succeeded and are deleted count: one that failed is made anew and bound.
func TestMembersThatAreDoneAndDeleted(t *testing.T) {
	c := newCluster(t, 1, long)
	c.createPodGroup("gang", 3)
	controller := metav1.OwnerReference{
		APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "u-job", Controller: new(true),
	}
	create := func(name string) {
		c.CreatePod(name, byHand, "1", ofGang, func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{controller}
		})
	}
	names := []string{"worker-0", "worker-1", "worker-2"}
	for _, name := range names {
		create(name)
	}
	c.bindSoon(names...)
	pods := c.Client().CoreV1().Pods(c.Namespace)
	for i, phase := range []string{"Succeeded", "Succeeded", "Failed"} {
		_, err := pods.Patch(t.Context(), names[i], types.MergePatchType, []byte(`{"status":{"phase":"`+phase+`"}}`),
			metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations, "all are done") })
	c.Delete(names...)
	create("worker-2")
	c.bindSoon("worker-2")
	c.awaitGangs(map[string]int{"Whole": 1})
}
