package devices

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = corev1.NamespaceDefault
	scheduler = "extended-resource-scheduler"
	// poll is how often a condition is looked at; soon is how long it may take to come true, far above
	// what it takes on an idle machine; never is for how long something is watched that must not happen.
	poll  = 20 * time.Millisecond
	soon  = 30 * time.Second
	never = 1500 * time.Millisecond
	// wakeWithin is how soon a waiting pod has to run after what it waits for was given back.
	wakeWithin = 2 * time.Second
)

// cluster is a control plane with a GlobalReserve server.
type cluster struct {
	*controlplane.ControlPlane
	t       *testing.T
	objects versioned.Interface
	dynamic dynamic.Interface
	verdict *verdict
	server  *testbed.Server
	webhook *clusterload.Webhook
	proxy   *controlplane.FaultProxy
}

// setup says what a cluster is like.
type setup struct {
	// own is a control plane of its own; nil is the shared one.
	own   *controlplane.Options
	nodes int
	// admission has the API server ask about bindings.
	admission bool
	// alone is without a server.
	alone bool
	// proxied puts a FaultProxy between the server and the API server.
	proxied bool
	// args are added to the server's command line.
	args []string
}

func newCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	c := &cluster{t: t}
	if s.own != nil {
		c.ControlPlane = controlplane.StartT(t, *s.own)
		require.NoError(t, crd.Prepare(t.Context(), c.ControlPlane))
	} else {
		c.ControlPlane = shared.StartT(t)
	}
	config, err := c.AdminRESTConfig()
	require.NoError(t, err)
	c.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	c.objects = testbed.Objects(t, c.ControlPlane)
	_, err = c.CreateNodes(t.Context(), s.nodes, controlplane.NodeTemplate{})
	require.NoError(t, err)
	c.verdict = startVerdict(t, c.Client())
	if !s.alone {
		c.startServer(&s)
	}
	return c
}

func (c *cluster) startServer(s *setup) {
	c.t.Helper()
	var err error
	args := s.args
	if s.admission {
		c.webhook, err = clusterload.NewWebhook(c.ControlPlane)
		require.NoError(c.t, err)
		args = slices.Concat(args, c.webhook.Args)
	}
	if s.proxied {
		c.proxy, err = c.StartFaultProxy()
		require.NoError(c.t, err)
	}
	c.server = testbed.StartServer(c.t, c.ControlPlane, clusterload.ServerOptions{Args: args, Proxy: c.proxy})
	if s.admission {
		require.NoError(c.t, c.webhook.Install(c.t.Context(), c.ControlPlane, nil))
	}
}

// startScheduler starts a kube-scheduler of scheduler-config/extended-resource-scheduler.yaml under a name.
func (c *cluster) startScheduler(name string) {
	c.t.Helper()
	config, err := clusterload.SchedulerConfig("extended-resource-scheduler.yaml", c.server.URL)
	require.NoError(c.t, err)
	config = bytes.ReplaceAll(config, []byte("schedulerName: "+scheduler), []byte("schedulerName: "+name))
	require.NoError(c.t, c.StartScheduler(c.t.Context(), name, config))
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.t = t
	return &inner
}

// eventually polls a condition until it holds; what it last failed by is reported.
func (c *cluster) eventually(condition func(t *assert.CollectT), what ...any) {
	c.t.Helper()
	require.EventuallyWithT(c.t, condition, soon, poll, what...)
}

// bind asks the server to bind a pod, as a scheduler does, and returns why it did not.
func (c *cluster) bind(pod *corev1.Pod, node string) (refusal string) {
	c.t.Helper()
	refusal, err := c.server.TryBind(c.t.Context(), pod, node)
	require.NoError(c.t, err)
	return refusal
}

// filter asks the server where a pod could go, and returns the reason for each node where it cannot.
func (c *cluster) filter(pod *corev1.Pod, nodes ...string) map[string]string {
	c.t.Helper()
	reasons, err := c.server.Filter(c.t.Context(), pod, nodes...)
	require.NoError(c.t, err)
	return reasons
}

// metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c *cluster) metric(name string, labels ...string) float64 {
	c.t.Helper()
	sum, err := c.server.Metric(c.t.Context(), name, labels...)
	require.NoError(c.t, err)
	return sum
}
