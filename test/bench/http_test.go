package bench

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	filterNodes = 500
	// filterCalls is how many calls are measured together: a process's time is counted in steps of
	// 10 ms.
	filterCalls = 5000
	gangPods    = 1000
	gangCalls   = 20
)

// BenchmarkFilterOverHTTP measures the processor time that the whole server takes for a filter call
// with a pod of 4 KB and 500 node names: with a pod the server has seen before at that version, as
// after every first call, and with one it has not.
func BenchmarkFilterOverHTTP(b *testing.B) {
	c := startCluster(b)
	server := startServer(b, c)
	known, err := createPods(b.Context(), c.Client(), 1, nil)
	require.NoError(b, err)
	known[0].ManagedFields = nil // kube-scheduler drops them
	for name, podOf := range map[string]func(i int) *corev1.Pod{
		"known pod": func(int) *corev1.Pod { return known[0] },
		"new pod": func(i int) *corev1.Pod {
			pod := known[0].DeepCopy()
			pod.UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
			pod.Name = fmt.Sprintf("%s-%d", pod.Name, i)
			return pod
		},
	} {
		b.Run(name, func(b *testing.B) {
			bodies := make([][]byte, filterCalls)
			for i := range bodies {
				bodies[i] = filterBody(b, podOf(i))
			}
			for b.Loop() {
				before, err := cpuTime(server.PID())
				require.NoError(b, err)
				began := time.Now()
				for _, body := range bodies {
					ask(b, server, testbed.FilterPath, body, &extenderv1.ExtenderFilterResult{})
				}
				wall := time.Since(began)
				after, err := cpuTime(server.PID())
				require.NoError(b, err)
				perCall := func(d time.Duration) float64 { return float64(d.Microseconds()) / filterCalls }
				b.ReportMetric(perCall(after-before), "server-cpu-µs/call")
				b.ReportMetric(perCall(wall), "wall-µs/call")
				b.Logf("SUMMARY filter, %s, %d bytes with %d node names: %.0f µs of server processor time per call, %.0f µs from the outside",
					name, len(bodies[0]), filterNodes, perCall(after-before), perCall(wall))
			}
		})
	}
}

func filterBody(b *testing.B, pod *corev1.Pod) []byte {
	b.Helper()
	names := make([]string, filterNodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i*nodes/filterNodes)
	}
	body, err := json.Marshal(&extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	require.NoError(b, err)
	return body
}

// BenchmarkReserveOverHTTP measures how long a /reserve of 1,000 pods takes from the outside.
func BenchmarkReserveOverHTTP(b *testing.B) {
	c := startCluster(b)
	server := startServer(b, c)
	pods, err := createPods(b.Context(), c.Client(), gangPods, nil)
	require.NoError(b, err)
	request := reserver.Request{SchedulerName: schedulerName, Pods: pods}
	for i, pod := range pods {
		pod.ManagedFields = nil
		request.Nodes = append(request.Nodes, fmt.Sprintf("node-%d", i*nodes/gangPods))
	}
	body, err := json.Marshal(&request)
	require.NoError(b, err)
	for b.Loop() {
		times := make([]time.Duration, gangCalls)
		for i := range times {
			var answer reserver.Answer
			began := time.Now()
			ask(b, server, testbed.ReservePath, body, &answer)
			times[i] = time.Since(began)
			require.True(b, answer.Granted(), answer.Error)
			ask(b, server, testbed.UnreservePath, body, &answer)
			require.True(b, answer.Granted(), answer.Error)
		}
		typical := float64(median(times).Microseconds()) / 1e3
		b.ReportMetric(typical, "ms/reserve")
		b.Logf("SUMMARY reserve of %d pods, %.1f MB: %.1f ms (median of %d)", gangPods, float64(len(body))/1e6, typical, gangCalls)
	}
}

// ask makes a call that must be answered with 200.
func ask(b *testing.B, server *clusterload.Server, path string, body []byte, answer any) {
	b.Helper()
	require.NoError(b, testbed.Caller{URL: server.URL}.Post(b.Context(), path, body, answer))
}
