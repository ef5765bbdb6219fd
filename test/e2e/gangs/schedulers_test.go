//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A gang scheduler that is not ours places a gang while admission is asked about each of its bindings.
func TestCoschedulingUnderAdmission(t *testing.T) {
	c := newCluster(t, 2, shipped)
	c.startGangScheduler()
	c.createPodGroup("gang", gangSize)
	members := c.gangPods("gang")
	c.Create(members[:gangSize-1]...)
	before := c.admitted()
	controlplane.Never(t, func() bool { return len(testbed.Bound(c.Pods())) > 0 }, testbed.Never, testbed.Poll,
		"Coscheduling waits for the whole gang")
	c.Create(members[gangSize-1])
	for _, pod := range members {
		c.AwaitBound(pod.Name)
	}
	c.Eventually(func(t *assert.CollectT) { // a decision is counted when it is answered
		assert.Equal(t, before+gangSize, c.admitted())
	})
	c.RequireNeverOvercommitted()
}

// Two members of a gang are bound, and the node that has the capacity of the last one is unusable for a while.
// Coscheduling gives up the other one then, and tries it again when a pod is bound or a PodGroup changes; in a cluster
// where nothing happens that is after minutes. The server binds it before.
func TestCoschedulingForgetsAMember(t *testing.T) {
	c := newCluster(t, 2, shipped)
	c.createPodGroup("gang", gangSize)
	members := c.gangPods("gang")
	fillers := testbed.NewPods(gangSize, "filler", byHand, "1")
	c.Create(append(fillers, members...)...)
	for i, node := range []int{0, 0, 0, 1} { // one CPU stays free on the first node, and three on the second one
		require.NoError(t, c.BindDirectly(fillers[i].Name, c.nodes[node]))
	}
	for _, pod := range members[2:] {
		require.NoError(t, c.BindDirectly(pod.Name, c.nodes[1]))
	}
	taint := func(taints ...corev1.Taint) {
		c.ChangeNode(c.nodes[1], func(node *corev1.Node) { node.Spec.Taints = taints })
	}
	taint(corev1.Taint{Key: "away", Effect: corev1.TaintEffectNoSchedule})
	c.startGangScheduler()
	for _, pod := range members[:2] {
		c.AwaitRefused(pod.Name)
	}
	taint()
	for _, pod := range members {
		c.AwaitBound(pod.Name)
	}
	assert.Positive(c.T, c.Metric("globalreserve_gang_bindings_total", "result", "bound"))
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// Volcano has begun to bind gangs when kube-scheduler is let go. They share the capacity without a node that is
// overcommitted at any moment, and no gang ends as a half.
func TestVolcanoUnderAdmission(t *testing.T) {
	c := newVolcanoCluster(t, 12, shipped)
	c.fillTogether()
	c.requireNothingKept()
	snapshot := c.Watcher.Snapshot()
	whole, half := snapshot.CountGangs()
	t.Logf("gangs: %d whole, %d half, of %d", whole, half, len(snapshot.Gangs))
	assert.Zero(t, half, "gangs that are half")
	assert.NotZero(t, whole, "Volcano took no part")
	assert.GreaterOrEqual(t, c.admitted(), whole*gangSize, "admission was asked about Volcano's bindings")
	c.RequireNeverOvercommitted()
}

// YuniKorn places gangs where nobody else wants the capacity: first their placeholders, and then the pods, while
// admission is asked about the bindings of both.
func TestYuniKornUnderAdmission(t *testing.T) {
	c := newYuniKornCluster(t, 2, shipped)
	c.startGangScheduler()
	var members []*corev1.Pod
	for _, name := range []string{"gang-0", "gang-1"} {
		members = append(members, c.gangPods(name)...)
	}
	c.Create(members...)
	for _, pod := range members {
		c.AwaitBound(pod.Name)
	}
	c.Eventually(func(t *assert.CollectT) { // a decision is counted when it is answered
		assert.Equal(t, 2*len(members), c.admitted(), "bindings of placeholders and of pods")
	})
	for _, pod := range c.Pods() {
		assert.False(t, clusterload.IsYuniKornPlaceholder(&pod), "%s was not replaced", pod.Name)
	}
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// YuniKorn has begun to bind placeholders when kube-scheduler is let go. No node is overcommitted at any moment. What
// becomes of the gangs is left open: each side takes a part of the capacity, and YuniKorn does not try a pod again
// whose binding was refused.
func TestYuniKornBesideKubeScheduler(t *testing.T) {
	c := newYuniKornCluster(t, 12, shipped)
	c.fillTogether()
	snapshot := c.Watcher.Snapshot()
	whole, half := snapshot.CountGangs()
	t.Logf("gangs: %d whole, %d half, of %d", whole, half, len(snapshot.Gangs))
	assert.Positive(t, c.admitted(), "admission was asked about YuniKorn's bindings")
	c.RequireNeverOvercommitted()
}
