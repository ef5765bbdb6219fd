package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server is away: with failurePolicy Fail nothing is bound, outside the exempt namespaces.
func TestServerAwayWithPolicyFail(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.create("p", "1")
	_, err := c.Server.Stop()
	require.NoError(t, err)
	require.ErrorContains(t, c.BindDirectly("p", "node-0"), "failed calling webhook")

	exempt := *c
	exempt.Namespace = metav1.NamespaceSystem
	exempt.create("critical", "1")
	require.NoError(t, exempt.BindDirectly("critical", "node-0"))

	require.NoError(t, c.Server.Start(t.Context()))
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("p", "node-0")) })
	c.RequireNeverOvercommitted()
}

// With failurePolicy Ignore bindings go through while the server is away. The overcommit that results
// is reported when it is back, nothing more is given out there, and it heals as pods go.
func TestServerAwayWithPolicyIgnore(t *testing.T) {
	c := newCluster(t, 1, func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		}
	})
	for _, name := range []string{"first", "second", "third"} {
		c.create(name, "3")
	}
	require.NoError(t, c.BindDirectly("first", "node-0"))
	_, err := c.Server.Stop()
	require.NoError(t, err)
	require.NoError(t, c.BindDirectly("second", "node-0"), "nobody was there to refuse it")

	require.NoError(t, c.Server.Start(t.Context()))
	overcommitted := func() int { return c.Metric("globalreserve_overcommitted_nodes") }
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 1, overcommitted()) })
	require.ErrorContains(t, c.BindDirectly("third", "node-0"), "-2 free")
	c.Delete("second")
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, overcommitted()) })
	require.Error(t, c.BindDirectly("third", "node-0"))
	c.Delete("first")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("third", "node-0")) })
}

// Bindings by the server itself, for a kube-scheduler behind its extender, are allowed by their allocation
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
			const scheduler = corev1.DefaultSchedulerName
			c.StartKubeScheduler(scheduler, "default-scheduler.yaml")
			c.Create(testbed.NewPods(20, "p", scheduler, "500m")...)
			c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 16) })
			c.Eventually(func(t *assert.CollectT) { // a bind is counted when it is answered
				assert.Equal(t, 16, c.Metric("globalreserve_decisions_total", "result", "granted", "scheduler", scheduler, "verb", "bind"))
				assert.Equal(t, change != nil, c.decided(scheduler, "skipped") >= 16)
			})
			assert.Equal(t, change == nil, c.decided(scheduler, "skipped") == 0)
			c.RequireNeverOvercommitted()
		})
	}
}
