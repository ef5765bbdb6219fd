package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// naiveScheduler binds the pods of its name to any node, looks at nothing, and tries again where that
// failed.
type naiveScheduler struct {
	client kubernetes.Interface
	name   string
	nodes  []string

	mu      sync.Mutex
	refused int // bindings refused for want of room
	changed int // bindings that came too late, because the pod had changed
}

func (s *naiveScheduler) run(ctx context.Context) {
	for ctx.Err() == nil {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=,spec.schedulerName=" + s.name,
		})
		if err != nil {
			continue
		}
		for i := range pods.Items {
			s.schedule(ctx, &pods.Items[i])
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *naiveScheduler) schedule(ctx context.Context, p *corev1.Pod) {
	for _, i := range rand.Perm(len(s.nodes)) {
		err := s.client.CoreV1().Pods(namespace).Bind(ctx, binding(p.Name, s.nodes[i]), metav1.CreateOptions{})
		s.note(err)
		if err == nil || !apierrors.IsConflict(err) {
			return
		}
	}
}

func (s *naiveScheduler) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || !apierrors.IsConflict(err):
	case isRefusal(err):
		s.refused++
	default:
		s.changed++
	}
}

func isRefusal(err error) bool { return strings.Contains(err.Error(), "denied the request") }

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
	var naive []*naiveScheduler
	for _, name := range []string{"naive-a", "naive-b"} {
		s := &naiveScheduler{client: c.naive, name: name, nodes: nodeNames}
		naive = append(naive, s)
		running.Go(func() { s.run(ctx) })
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
			assert.Zero(t, c.metric(`globalreserve_claims{state="Bound"}`))
		})
	}
	for _, s := range naive {
		t.Logf("%s: %d bindings refused for want of room, %d because the pod had changed", s.name, s.refused, s.changed)
		assert.Positive(t, s.refused)
	}
	for _, scheduler := range []string{"naive-a", "naive-b", "default-scheduler"} {
		t.Logf("%s: granted %d, refused %d, withdrawn %d", scheduler,
			c.metric(`globalreserve_decisions_total{result="granted",scheduler="`+scheduler+`",verb="admission"}`),
			c.metric(`globalreserve_decisions_total{result="refused",scheduler="`+scheduler+`",verb="admission"}`),
			c.metric(`globalreserve_decisions_total{result="withdrawn",scheduler="`+scheduler+`",verb="admission"}`))
		assert.Zero(t, c.metric(`globalreserve_bypassed_binds_total{scheduler="`+scheduler+`"}`))
	}
}

func boundPods(c *cluster) []corev1.Pod {
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	require.NoError(c.t, err)
	return list.Items
}
