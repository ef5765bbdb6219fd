package bench

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	filterNodes = 500
	// filterCalls is how many calls are measured together: a process's time is counted in steps of 10 ms.
	filterCalls = 5000
	gangPods    = 1000
	gangCalls   = 20
)

// BenchmarkFilterOverHTTP measures the processor time that the whole server takes for a filter call with a pod of 4 KB
// and 500 node names: with a pod it has been asked about before at that version, as after every first call, and with
// one it has not; what it would take without an election, and what a follower takes that passes such a call on.
func BenchmarkFilterOverHTTP(b *testing.B) {
	c := startCluster(b)
	server := startServer(b, c)
	pods, err := createPods(b.Context(), c.Client(), filterCalls, nil)
	require.NoError(b, err)
	for _, pod := range pods {
		pod.ManagedFields = nil // kube-scheduler drops them
	}
	same := func(int) *corev1.Pod { return pods[0] }
	another := func(i int) *corev1.Pod { return pods[i] }
	b.Run("known pod", func(b *testing.B) { measureFilter(b, server, same) })
	b.Run("new pod", func(b *testing.B) { measureFilter(b, server, another) })
	_, err = server.Stop()
	require.NoError(b, err)
	alone := startNamed(b, c, "alone", "--leader-elect=false")
	b.Run("known pod, without an election", func(b *testing.B) { measureFilter(b, alone, same) })
	_, err = alone.Stop()
	require.NoError(b, err)
	require.NoError(b, server.Start(b.Context()))
	follower := startNamed(b, c, "follower")
	b.Run("by a follower", func(b *testing.B) { measureFilter(b, follower, same) })
}

// measureFilter measures the processor time of the server that is asked to filter.
func measureFilter(b *testing.B, server *clusterload.Server, podOf func(i int) *corev1.Pod) {
	b.Helper()
	bodies := make([][]byte, filterCalls)
	for i := range bodies {
		bodies[i] = filterBody(b, podOf(i))
	}
	for b.Loop() {
		before := usedBy(b, server.Process)
		began := time.Now()
		for _, body := range bodies {
			ask(b, server, testbed.FilterPath, body, &extenderv1.ExtenderFilterResult{})
		}
		wall := time.Since(began)
		after := usedBy(b, server.Process)
		perCall := func(d time.Duration) float64 { return float64(d.Microseconds()) / filterCalls }
		b.ReportMetric(perCall(after-before), "server-cpu-µs/call")
		b.ReportMetric(perCall(wall), "wall-µs/call")
		b.Logf("SUMMARY filter, %s, %d bytes with %d node names: %.0f µs of server processor time per call, %.0f µs from "+
			"the outside",
			b.Name(), len(bodies[0]), filterNodes, perCall(after-before), perCall(wall))
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

// BenchmarkReserveOverHTTP measures how long a /reserve of 1,000 pods takes from the outside, in the server's memory.
func BenchmarkReserveOverHTTP(b *testing.B) {
	c := startCluster(b)
	server := startServer(b, c)
	pods, err := createPods(b.Context(), c.Client(), gangPods, nil)
	require.NoError(b, err)
	request := reserver.Request{SchedulerName: schedulerName, Pods: pods, Durable: ptr.To(false)}
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
		b.Logf("SUMMARY reserve of %d pods, %.1f MB: %.1f ms (median of %d)", gangPods, float64(len(body))/1e6, typical,
			gangCalls)
	}
}

// ask makes a call that must be answered with 200.
func ask(b *testing.B, server *clusterload.Server, path string, body []byte, answer any) {
	b.Helper()
	require.NoError(b, testbed.Caller{URL: server.URL}.Post(b.Context(), path, body, answer))
}
