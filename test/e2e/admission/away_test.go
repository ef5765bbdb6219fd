package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func gates(names ...string) []corev1.PodSchedulingGate {
	var gates []corev1.PodSchedulingGate
	for _, name := range names {
		gates = append(gates, corev1.PodSchedulingGate{Name: name})
	}
	return gates
}

// The server is away: with failurePolicy Fail nothing is bound, outside the exempt namespaces.
func TestServerAwayWithPolicyFail(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	c.create(pod("p", "1"))
	_, err := c.server.Stop()
	require.NoError(t, err)
	require.ErrorContains(t, c.bind(ctx, "p", "node-0"), "failed calling webhook")

	critical := pod("critical", "1")
	critical.Namespace = metav1.NamespaceSystem
	_, err = c.naive.CoreV1().Pods(critical.Namespace).Create(ctx, critical, metav1.CreateOptions{})
	require.NoError(t, err)
	b := binding("critical", "node-0")
	b.Namespace = critical.Namespace
	require.NoError(t, c.naive.CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{}))

	require.NoError(t, c.server.Start(ctx))
	eventually(t, soon, func(t *assert.CollectT) { assert.NoError(t, c.bind(ctx, "p", "node-0")) })
	c.requireNeverOvercommitted()
}

// With failurePolicy Ignore bindings go through while the server is away. The overcommit that results
// is reported when it is back, nothing more is given out there, and it heals as pods go.
func TestServerAwayWithPolicyIgnore(t *testing.T) {
	c := newCluster(t, 1, func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		}
	})
	ctx := t.Context()
	for _, name := range []string{"first", "second", "third"} {
		c.create(pod(name, "3"))
	}
	require.NoError(t, c.bind(ctx, "first", "node-0"))
	_, err := c.server.Stop()
	require.NoError(t, err)
	require.NoError(t, c.bind(ctx, "second", "node-0"), "nobody was there to refuse it")

	require.NoError(t, c.server.Start(ctx))
	eventually(t, soon, func(t *assert.CollectT) {
		assert.Equal(t, 1, c.metric("globalreserve_overcommitted_nodes"))
	})
	require.ErrorContains(t, c.bind(ctx, "third", "node-0"), "free -2000")
	c.remove("second")
	eventually(t, soon, func(t *assert.CollectT) { assert.Zero(t, c.metric("globalreserve_overcommitted_nodes")) })
	require.Error(t, c.bind(ctx, "third", "node-0"))
	c.remove("first")
	eventually(t, soon, func(t *assert.CollectT) { assert.NoError(t, c.bind(ctx, "third", "node-0")) })
}

// Bindings by the server itself, for a kube-scheduler behind its extender, are allowed by their claim
// even where no matchCondition keeps them from the webhook.
func TestOwnBindings(t *testing.T) {
	for name, change := range map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration){
		"kept from the webhook": nil,
		"sent to the webhook": func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
			configuration.Webhooks[0].MatchConditions = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2, change)
			c.startExtenderScheduler()
			for range 20 {
				p := pod(unique("p"), "500m")
				p.Spec.SchedulerName = corev1.DefaultSchedulerName
				c.create(p)
			}
			eventually(t, soon, func(t *assert.CollectT) { assert.Len(t, boundPods(c), 16) })
			skipped := c.decided("default-scheduler", "skipped")
			assert.Equal(t, map[bool]int{true: 0, false: 16}[change == nil], skipped)
			assert.Equal(t, 16, c.metric("globalreserve_decisions_total", "result", "granted", "scheduler", "default-scheduler", "verb", "bind"))
			c.requireNeverOvercommitted()
		})
	}
}
