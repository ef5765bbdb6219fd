package forward

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// BenchmarkFilter measures the CPU of filter calls of 500 nodes, of the client and both servers together, by which
// one that is passed on costs more. The routes only read and write.
func BenchmarkFilter(b *testing.B) {
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d.example.internal", i)
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &v1.Pod{}, NodeNames: &names})
	require.NoError(b, err)
	answer, err := json.Marshal(extenderv1.ExtenderFilterResult{NodeNames: &names})
	require.NoError(b, err)
	leader, follower := pair(b)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		_, _ = w.Write(answer)
	})
	for name, server := range map[string]*server{"direct": leader, "passed on": follower} {
		b.Run(name, func(b *testing.B) {
			began := cpu(b)
			for b.Loop() {
				response, err := http.Post(server.front.URL+"/filter", "application/json", bytes.NewReader(body))
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(b, err)
				_ = response.Body.Close()
			}
			b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpu is the time that this process has used.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
