//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

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
