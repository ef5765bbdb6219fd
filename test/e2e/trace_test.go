//go:build e2e

package e2e

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// collector takes spans by OTLP.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu    sync.Mutex // guards spans
	spans []*tracev1.Span
}

// Export implements collectorv1.TraceServiceServer.
func (c *collector) Export(_ context.Context,
	r *collectorv1.ExportTraceServiceRequest,
) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a pod by their names; that of a span below another one has the other's before it.
func (c *collector) of(pod *corev1.Pod) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := tracing.TraceID(ledger.PodRef{UID: pod.UID})
	names, mine := map[string]string{}, slices.DeleteFunc(slices.Clone(c.spans),
		func(s *tracev1.Span) bool { return [16]byte(s.GetTraceId()) != id })
	for _, s := range mine {
		names[string(s.GetSpanId())] = s.GetName()
	}
	spans := map[string]*tracev1.Span{}
	for _, s := range mine {
		name := s.GetName()
		if above := string(s.GetParentSpanId()); above != "" {
			name = names[above] + "/" + name
		}
		spans[name] = s
	}
	return spans
}

// startCollector serves a collector, and returns a file that has spans of all pods sent there: the one of the
// documents.
func startCollector(t *testing.T) (c *collector, file string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, server := &collector{}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); assert.NoError(t, <-ended) })

	document, err := controlplane.ReadFile("docs", "tracing.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(document), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	example = strings.Replace(example, "localhost:4317", listener.Addr().String(), 1)
	example = regexp.MustCompile(`(samplingRatePerMillion:) .*`).ReplaceAllString(example, "$1 1000000")
	file = filepath.Join(t.TempDir(), "tracing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(example), 0o600))
	return c, file
}

// TestTraces follows pods from filter to Bound by what a collector gets of a real server, which a kube-scheduler and
// the API server ask.
func TestTraces(t *testing.T) {
	c := newCluster(t, 2)
	collected, file := startCollector(t)
	webhook := c.StartAsked(clusterload.ServerOptions{
		Args: []string{"--tracing-config-file=" + file}, Env: []string{"OTEL_BSP_SCHEDULE_DELAY=100"},
	})
	t.Cleanup(func() { require.NoError(t, webhook.Uninstall(context.WithoutCancel(t.Context()), c.ControlPlane)) })
	c.StartKubeScheduler("two-profiles", "two-profiles.yaml")

	pod := c.CreatePod("pod", "packing-scheduler", "1")
	pod, _ = c.AwaitBound(pod.Name)
	direct := c.CreatePod("direct", nobody, "1")
	require.NoError(t, c.Client().CoreV1().Pods(testbed.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: direct.Name, UID: direct.UID}, Target: corev1.ObjectReference{Name: "node-0"},
	}, metav1.CreateOptions{}))
	named := c.CreatePod("named", nobody, "1")
	require.NoError(t, c.BindDirectly(named.Name, "node-0"))
	one, two := c.CreatePod("one", nobody, "1"), c.CreatePod("two", nobody, "1")
	require.True(t, c.Reserve(gangOf([]*corev1.Pod{one, two}, "node-0", "node-1")).Granted())
	want := map[*corev1.Pod][]string{
		pod: {
			"filter", "filter/decide", "prioritize", "prioritize/decide", "bind", "bind/decide", "bind/HTTP POST",
			"bound",
		},
		direct: {"admission", "admission/decide", "bound"},
		named:  {"admission", "bound"},
		one:    {"reserve"},
		two:    {"reserve"},
	}
	c.Eventually(func(t *assert.CollectT) {
		for pod, names := range want {
			spans := collected.of(pod)
			for _, name := range names {
				assert.Contains(t, spans, name, pod.Name)
			}
		}
	})

	spans := collected.of(pod)
	for name, s := range spans {
		if strings.Contains(name, "/") {
			continue
		}
		about := map[string]string{}
		for _, a := range s.GetAttributes() {
			about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		assert.Equal(t, string(pod.UID), about["k8s.pod.uid"], name)
		assert.Equal(t, testbed.Namespace+"/"+pod.Name, about["k8s.namespace.name"]+"/"+about["k8s.pod.name"], name)
		if name == "bind" || name == "bound" {
			assert.Equal(t, pod.Spec.NodeName, about["k8s.node.name"], name)
		}
	}
	post := spans["bind/HTTP POST"]
	for _, inOrder := range [][2]uint64{
		{spans["filter"].GetStartTimeUnixNano(), spans["filter"].GetEndTimeUnixNano()},
		{spans["filter"].GetEndTimeUnixNano(), spans["bind"].GetStartTimeUnixNano()},
		{spans["bind/decide"].GetEndTimeUnixNano(), post.GetStartTimeUnixNano()},
		{post.GetStartTimeUnixNano(), spans["bound"].GetEndTimeUnixNano()},
	} {
		assert.LessOrEqual(t, inOrder[0], inOrder[1])
	}
	links := map[string]bool{}
	for _, member := range []*corev1.Pod{one, two} {
		for _, link := range collected.of(member)["reserve"].GetLinks() {
			links[hex.EncodeToString(link.GetTraceId())] = true
		}
	}
	assert.Len(t, links, 1, "both pods of a gang link to its request")
	c.RequireNeverOvercommitted()
}
