package admission

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Two schedulers that just bind, and a kube-scheduler that has never heard of GlobalReserve, fill the
// same nodes with more than they have: nothing is ever overcommitted, and all that fits is bound.
func TestSchedulersThatKnowNothingAreArbitrated(t *testing.T) {
	const nodes = 20
	c := newCluster(t, nodes, nil)
	require.NoError(t, c.StartScheduler(t.Context(), "default-scheduler", nil))
	var nodeNames []string
	for i := range nodes {
		nodeNames = append(nodeNames, fmt.Sprintf("node-%d", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var blind []*clusterload.NaiveScheduler
	for _, name := range []string{"naive-a", "naive-b"} {
		s := &clusterload.NaiveScheduler{Client: c.Client(), Name: name, Namespace: testbed.Namespace, Nodes: nodeNames}
		blind = append(blind, s)
		running.Go(func() { s.Run(ctx) })
	}
	var pods []*corev1.Pod
	for i := range nodes * 4 * 6 / 5 * 2 { // 120% of the CPUs, in halves
		scheduler := []string{"naive-a", "naive-b", "default-scheduler"}[i%3]
		pods = append(pods, testbed.NewPod(fmt.Sprintf("pod-%d", i), scheduler, "500m"))
	}
	require.NoError(t, clusterload.CreatePods(t.Context(), c.Client(), pods))
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), nodes*8) })
	c.RequireNeverOvercommitted()
	all := 0
	for _, s := range blind {
		refused, tooLate := s.Refused()
		t.Logf("%s: %d bindings refused for want of capacity, %d because the pod had changed", s.Name, refused, tooLate)
		all += refused
	}
	assert.Positive(t, all)
	for _, scheduler := range []string{"naive-a", "naive-b", "default-scheduler"} {
		t.Logf("%s: granted %d, refused %d, withdrawn %d", scheduler,
			c.decided(scheduler, "granted"),
			c.decided(scheduler, "refused"),
			c.decided(scheduler, "withdrawn"))
		assert.Zero(t, c.bypassed(scheduler))
	}
}
