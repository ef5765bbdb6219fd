package admission

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = corev1.NamespaceDefault
	poll      = 20 * time.Millisecond
	soon      = 20 * time.Second
)

// cluster is a control plane whose API server asks a GlobalReserve server about bindings.
type cluster struct {
	*controlplane.ControlPlane
	t       *testing.T
	watcher *clusterload.Watcher
	server  *testbed.Server
	webhook *clusterload.Webhook
	// naive is the client of somebody who knows nothing of GlobalReserve.
	naive kubernetes.Interface
}

// newCluster starts a control plane with so many nodes of 4 CPUs, a server, and its webhook.
func newCluster(t *testing.T, nodes int, change func(*admissionregistrationv1.MutatingWebhookConfiguration)) *cluster {
	t.Helper()
	c := newBareCluster(t, nodes)
	require.NoError(t, c.webhook.Install(t.Context(), c.ControlPlane, change))
	return c
}

// newBareCluster is newCluster without the webhook being installed.
func newBareCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.StartT(t), t: t}
	_, err := c.CreateNodes(t.Context(), nodes, controlplane.NodeTemplate{})
	require.NoError(t, err)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	config, err := c.RESTConfig("naive", controlplane.AdminGroup)
	require.NoError(t, err)
	c.naive, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.webhook, err = clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	c.server = testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{
		Args: slices.Concat(c.webhook.Args, []string{"--full-compare-interval=3s", "--log-level=info"}),
	})
	return c
}

// pod is a pod that asks for so many CPUs and has nobody who schedules it but the test.
func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: "naive",
			Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
	}
}

func (c *cluster) create(p *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	created, err := c.naive.CoreV1().Pods(namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return created
}

func (c *cluster) bind(ctx context.Context, name, node string) error {
	return c.naive.CoreV1().Pods(namespace).Bind(ctx, binding(name, node), metav1.CreateOptions{})
}

func binding(name, node string) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
}

func (c *cluster) remove(name string) {
	c.t.Helper()
	require.NoError(c.t, c.naive.CoreV1().Pods(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c *cluster) metric(name string, labels ...string) int {
	c.t.Helper()
	sum, err := c.server.Metric(c.t.Context(), name, labels...)
	require.NoError(c.t, err)
	return int(sum)
}

// decided counts the decisions on bindings of a scheduler that ended so.
func (c *cluster) decided(scheduler, result string) int {
	return c.metric("globalreserve_decisions_total", "result", result, "scheduler", scheduler, "verb", "admission")
}

func (c *cluster) bypassed(scheduler string) int {
	return c.metric("globalreserve_bypassed_binds_total", "scheduler", scheduler)
}

func (c *cluster) claims() reserver.ClaimsAnswer {
	c.t.Helper()
	claims, err := c.server.Claims(c.t.Context())
	require.NoError(c.t, err)
	return claims
}

// claimsIn is how many claims are in a state.
func (c *cluster) claimsIn(state string) int { return c.metric("globalreserve_claims", "state", state) }

func eventually(t *testing.T, within time.Duration, condition func(t *assert.CollectT), what ...any) {
	t.Helper()
	require.EventuallyWithT(t, condition, within, poll, what...)
}

// requireNeverOvercommitted fails if at any event a node had more bound than it offers.
func (c *cluster) requireNeverOvercommitted() {
	c.t.Helper()
	require.NoError(c.t, c.watcher.CatchUp(c.t.Context()))
	require.Zero(c.t, c.watcher.Gaps())
	require.Empty(c.t, c.watcher.Violations(), "nodes were overcommitted")
}

var names atomic.Int64

func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, names.Add(1)) }

// startExtenderScheduler starts a kube-scheduler behind the server's extender.
func (c *cluster) startExtenderScheduler() {
	c.t.Helper()
	config, err := clusterload.SchedulerConfig("default-scheduler.yaml", c.server.URL)
	require.NoError(c.t, err)
	require.NoError(c.t, c.StartScheduler(c.t.Context(), "default-scheduler", config))
}
