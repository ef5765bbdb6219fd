package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
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
	server  *clusterload.Server
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
	config.ContentType = "application/json"
	c.objects, err = versioned.NewForConfig(config)
	require.NoError(t, err)
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
	args := slices.Concat(clusterload.QuickStart, []string{"--log-level=debug", "--compare-interval=500ms"}, s.args)
	var err error
	if s.admission {
		c.webhook, err = clusterload.NewWebhook(c.ControlPlane)
		require.NoError(c.t, err)
		args = append(args, c.webhook.Args...)
	}
	if s.proxied {
		c.proxy, err = c.StartFaultProxy()
		require.NoError(c.t, err)
	}
	c.server, err = clusterload.StartServer(c.t.Context(), c.ControlPlane, clusterload.ServerOptions{
		Binary: os.Getenv("GLOBALRESERVE_BINARY"), Args: args, Proxy: c.proxy,
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("end of the server's log:\n%s", tail(c.server.LogFile(), 40))
		}
	})
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
	refusal, err := c.tryBind(c.t.Context(), pod, node)
	require.NoError(c.t, err)
	return refusal
}

// tryBind is bind for a server that may be gone.
func (c *cluster) tryBind(ctx context.Context, pod *corev1.Pod, node string) (refusal string, err error) {
	var result extenderv1.ExtenderBindingResult
	err = c.post(ctx, "/bind", extenderv1.ExtenderBindingArgs{
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
	}, &result)
	return result.Error, err
}

// filter asks the server where a pod could go, and returns the reason for each node where it cannot.
func (c *cluster) filter(pod *corev1.Pod, nodes ...string) map[string]string {
	c.t.Helper()
	var result extenderv1.ExtenderFilterResult
	require.NoError(c.t, c.post(c.t.Context(), "/filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}, &result))
	require.Empty(c.t, result.Error)
	reasons := map[string]string{}
	for node, reason := range result.FailedNodes {
		reasons[node] = reason
	}
	for node, reason := range result.FailedAndUnresolvableNodes {
		reasons[node] = reason
	}
	return reasons
}

// post asks the server. An error means that no answer came.
func (c *cluster) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return do(request, answer)
}

// ask reads from the server.
func (c *cluster) ask(t require.TestingT, path string, answer any) {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.server.URL+path, http.NoBody)
	require.NoError(t, err)
	require.NoError(t, do(request, answer))
}

func do(request *http.Request, answer any) error {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var text bytes.Buffer
		_, _ = text.ReadFrom(response.Body)
		return fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, response.Status, text.String())
	}
	if text, ok := answer.(*string); ok {
		var content bytes.Buffer
		_, err = content.ReadFrom(response.Body)
		*text = content.String()
		return err
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// metric adds up those of the server's counts whose line begins so.
func (c *cluster) metric(prefix string) (sum float64) {
	c.t.Helper()
	var text string
	c.ask(c.t, "/metrics", &text)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			fields := strings.Fields(line)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(c.t, err)
			sum += value
		}
	}
	return sum
}

// tail returns the last lines of a file.
func tail(file string, lines int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
