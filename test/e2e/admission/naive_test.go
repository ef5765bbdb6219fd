package admission

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// Two schedulers that just bind, and a kube-scheduler that has never heard of GlobalReserve, fill the
// same nodes with more than they have: nothing is ever overcommitted, and all that fits is bound.
func TestSchedulersThatKnowNothingAreArbitrated(t *testing.T) {
	const nodes, rounds = 20, 3
	c := newCluster(t, nodes, nil)
	require.NoError(t, c.StartScheduler(t.Context(), "default-scheduler", nil))
	list, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var nodeNames []string
	for i := range list.Items {
		nodeNames = append(nodeNames, list.Items[i].Name)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var naive []*clusterload.NaiveScheduler
	for _, name := range []string{"naive-a", "naive-b"} {
		s := &clusterload.NaiveScheduler{Client: c.naive, Name: name, Namespace: namespace, Nodes: nodeNames}
		naive = append(naive, s)
		running.Go(func() { s.Run(ctx) })
	}
	for round := range rounds {
		var pods []*corev1.Pod
		for i := range nodes * 4 * 6 / 5 * 2 { // 120% of the CPUs, in halves
			p := pod(fmt.Sprintf("round-%d-%d", round, i), "500m")
			p.Spec.SchedulerName = []string{"naive-a", "naive-b", "default-scheduler"}[i%3]
			pods = append(pods, p)
		}
		require.NoError(t, clusterload.CreatePods(t.Context(), c.naive, pods))
		eventually(t, 2*soon, func(t *assert.CollectT) { assert.Len(t, boundPods(c), nodes*8) })
		c.requireNeverOvercommitted()
		require.NoError(t, clusterload.DeletePods(t.Context(), c.naive, namespace))
		eventually(t, soon, func(t *assert.CollectT) {
			assert.Zero(t, c.claimsIn("Bound"))
		})
	}
	for _, s := range naive {
		refused, tooLate := s.Refused()
		t.Logf("%s: %d bindings refused for want of room, %d because the pod had changed", s.Name, refused, tooLate)
		assert.Positive(t, refused)
	}
	for _, scheduler := range []string{"naive-a", "naive-b", "default-scheduler"} {
		t.Logf("%s: granted %d, refused %d, withdrawn %d", scheduler,
			c.decided(scheduler, "granted"),
			c.decided(scheduler, "refused"),
			c.decided(scheduler, "withdrawn"))
		assert.Zero(t, c.bypassed(scheduler))
	}
}

func boundPods(c *cluster) []corev1.Pod {
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	require.NoError(c.t, err)
	return list.Items
}
