//go:build soak

package flood

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

const (
	nodes = 5000
	// measured is for how long others ask, without the load and with it.
	measured = 15 * time.Second
	// slower is how much longer a filter call may take at the 99th percentile while others flood: so many times what it
	// takes without them, and stalled on top. On a quiet machine with a processor to spare it stays below 50 ms. Here the
	// clients that flood have the same processors as the server, and so do other programs: each of the calls waits for
	// its turn at them, too. A call that waited for memory, for a slow client, or behind a queue would take seconds.
	slower, stalled = 10, 400 * time.Millisecond
	// admissionWithin is how long a review may take at the 99th percentile. The API server gives it 10 s.
	admissionWithin = time.Second
)

// TestFlood has slow, greedy and idle clients at a server as manifests/base runs it, all at once. What others ask is
// answered, the probes answer in the time that the kubelet gives them, and the memory stays below the limit.
func TestFlood(t *testing.T) {
	c := testbed.NewCluster(t, shared.StartT(t))
	names := c.AddNodes(nodes, controlplane.NodeTemplate{})
	server := startShipped(t, &c)
	pod := c.CreatePod("waiting", "default-scheduler", "1")
	filter, err := json.Marshal(&extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	require.NoError(t, err)
	others := []*asker{
		{name: "filter", send: post(server.client("scheduler"), server.url+testbed.FilterPath, filter)},
		{name: "admission", send: post(server.client(controlplane.WebhookClient), server.admission, review(t))},
		{name: "livez", send: get(http.DefaultClient, server.health+"/livez", server.liveness), late: server.lateProbes},
		{name: "readyz", send: get(http.DefaultClient, server.health+"/readyz", server.readiness), late: server.lateProbes},
	}
	testbed.Measure(t, 3, func(try assert.TestingT) {
		quiet := askAll(t, others)
		hostile := attack(t, server, filter)
		loud := askAll(t, others)
		hostile.stop()
		for _, o := range others {
			t.Logf("%-9s without the flood %5d answers, 99 of 100 within %s; with it %5d within %s", o.name,
				len(quiet[o.name]), testbed.Quantile(quiet[o.name], 99), len(loud[o.name]),
				testbed.Quantile(loud[o.name], 99))
		}
		peak := server.peak(t)
		t.Logf("memory at most %d MiB of %d MiB; %s", peak>>20, server.memory>>20, hostile)
		assert.Less(try, testbed.Quantile(loud["filter"], 99), slower*testbed.Quantile(quiet["filter"], 99)+stalled)
		assert.Less(try, testbed.Quantile(loud["admission"], 99), admissionWithin)
		assert.Less(t, peak, server.memory)
		hostile.assertTried(t)
	})
}

// asker asks one thing again and again.
type asker struct {
	name string
	send func(ctx context.Context) error
	late int // how many answers one after another may be too late
}

// askAll has others ask, each one question after another, and returns how long the answers took. Every question has to
// be answered, a probe often enough for the kubelet.
func askAll(t *testing.T, others []*asker) map[string][]time.Duration {
	t.Helper()
	times := map[string][]time.Duration{}
	var mu sync.Mutex // guards times
	var all sync.WaitGroup
	end := time.Now().Add(measured)
	for _, o := range others {
		all.Go(func() {
			var took []time.Duration
			late := 0
			for time.Now().Before(end) {
				start := time.Now()
				err := o.send(t.Context())
				if late++; err == nil {
					late = 0
				}
				if late > o.late {
					assert.NoError(t, err, o.name)
					break
				}
				took = append(took, time.Since(start))
				<-time.After(10 * time.Millisecond) // not a flood itself
			}
			mu.Lock()
			defer mu.Unlock()
			times[o.name] = took
		})
	}
	all.Wait()
	for _, o := range others {
		require.NotEmpty(t, times[o.name])
	}
	return times
}

func post(client *http.Client, url string, body []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
		if err != nil {
			return err
		}
		return answered(client, request)
	}
}

func get(client *http.Client, url string, within time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		return answered(client, request)
	}
}

// review is what the API server sends of a pod that is created.
func review(t *testing.T) []byte {
	content, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: testbed.Namespace, Name: "new", DryRun: ptr.To(true),
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Object: runtime.RawExtension{Object: testbed.NewPod("new", "default-scheduler", "1",
				func(p *corev1.Pod) { p.Spec.NodeName = "node-0" })},
		},
	})
	require.NoError(t, err)
	return content
}

// peak is the most memory that the server had, in bytes.
func (s *shipped) peak(t *testing.T) int64 {
	process, err := procfs.NewProc(s.PID())
	require.NoError(t, err)
	status, err := process.NewStatus()
	require.NoError(t, err)
	return int64(status.VmHWM)
}
