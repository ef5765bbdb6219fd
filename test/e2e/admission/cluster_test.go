package admission

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// naive is the schedulerName of pods that nobody schedules but the test, by bindings of its own.
const naive = "naive"

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane whose API server asks a GlobalReserve server about bindings.
type cluster struct {
	testbed.Cluster
	webhook *clusterload.Webhook
}

// newCluster starts a control plane with so many nodes of 4 CPUs, a server, and its webhook.
func newCluster(t *testing.T, nodes int, change func(*admissionregistrationv1.MutatingWebhookConfiguration)) *cluster {
	t.Helper()
	c := newBareCluster(t, nodes)
	c.webhook.URL = c.DocumentedTLS("https://"+testbed.Host(c.webhook.URL), controlplane.WebhookClient) + "/admission"
	require.NoError(t, c.webhook.Install(t.Context(), c.ControlPlane, change))
	return c
}

// newBareCluster is newCluster without the webhook being installed.
func newBareCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	var err error
	c.webhook, err = clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	c.StartServer(clusterload.ServerOptions{
		Args: slices.Concat(c.webhook.Args, []string{"--full-compare-interval=3s", "--log-level=info"}),
	})
	return c
}

// run runs tests on one cluster, each without the pods of the one before.
func (c *cluster) run(t *testing.T, tests map[string]func(*testing.T, *cluster)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inner := *c
			inner.T = t
			defer inner.Clear()
			test(t, &inner)
			inner.RequireNeverOvercommitted()
		})
	}
	require.Zero(t, c.bypassed(naive))
}

// create creates a pod for the naive scheduler.
func (c *cluster) create(name, cpu string, changes ...func(*corev1.Pod)) *corev1.Pod {
	c.T.Helper()
	return c.CreatePod(name, naive, cpu, changes...)
}

// decided counts the decisions on bindings of a scheduler that ended so.
func (c *cluster) decided(scheduler, result string) int {
	return c.Metric("globalreserve_decisions_total", "result", result, "scheduler", scheduler, "verb", "admission")
}

func (c *cluster) bypassed(scheduler string) int {
	return c.Metric("globalreserve_bypassed_binds_total", "scheduler", scheduler)
}

// allocationsIn is how many allocations are in a state.
func (c *cluster) allocationsIn(state string) int {
	return c.Metric("globalreserve_allocations", "state", state)
}
