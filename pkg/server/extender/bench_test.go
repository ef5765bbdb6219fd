//go:build unix

package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/policy"
)

// benchWorld has 500 nodes of which every n-th is full, the body of a filter
// call about them, and a watch that has brought the pod if known is set.
func benchWorld(b testing.TB, full int, known bool) (*world, []byte) {
	w := newWorld(b)
	w.o.Log.SetLevel(logrus.InfoLevel)
	w.score(policy.Prioritize{
		Resources: []policy.ResourceWeight{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}, ReservationMatch: 10,
	})
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
		w.node(names[i], 64000, 256<<30)
		if full > 0 && i%full == 0 {
			w.run("pod-", names[i], 63900, 0)
		}
	}
	pod := typicalPod(b)
	if known {
		w.create(pod)
	}
	w.store.Seen(math.MaxUint64)
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	require.NoError(b, err)
	return w, body
}

// cpuTime is what the process has used so far. Unlike the time that passes it
// says the same on a machine that is busy with other things.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func reportCPU(b *testing.B, start time.Duration) {
	b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func benchmarkHandler(b *testing.B, handle func(http.ResponseWriter, *http.Request) error, body []byte) {
	w := discard{http.Header{}}
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, "/", reader)
	r.Header.Set("Content-Type", "application/json")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	defer reportCPU(b, cpuTime(b))
	for b.Loop() {
		reader.Reset(body)
		r.Body = io.NopCloser(reader)
		require.NoError(b, handle(w, r))
	}
}

// BenchmarkFilter is the handler alone: a pod of 4 KB and 500 node names.
func BenchmarkFilter(b *testing.B) {
	for name, tt := range map[string]struct {
		full  int
		known bool
	}{
		"known/all fit": {0, true}, "known/half fit": {2, true}, "known/none fit": {1, true}, "decoded/all fit": {0, false},
	} {
		b.Run(name, func(b *testing.B) {
			w, body := benchWorld(b, tt.full, tt.known)
			benchmarkHandler(b, w.filter, body)
		})
	}
}

func BenchmarkPrioritize(b *testing.B) {
	w, body := benchWorld(b, 2, true)
	benchmarkHandler(b, w.prioritize, body)
}

// BenchmarkFilterHTTP is a whole call over loopback, the client's part included.
func BenchmarkFilterHTTP(b *testing.B) {
	w, body := benchWorld(b, 2, true)
	server := httptest.NewServer(w.router)
	defer server.Close()
	b.ReportAllocs()
	defer reportCPU(b, cpuTime(b))
	for b.Loop() {
		answer, err := server.Client().Post(server.URL+"/filter", "application/json", bytes.NewReader(body))
		require.NoError(b, err)
		require.Equal(b, http.StatusOK, answer.StatusCode)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(b, err)
		require.NoError(b, answer.Body.Close())
	}
}
