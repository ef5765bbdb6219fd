//go:build unix

package mirror

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/costs"
)

// bindStream binds pods one after another and has others go, as a busy cluster does.
type bindStream struct {
	ledger  *ledger.Ledger
	request *resources.Request
	pods    int
}

const streamNodes = 500

func newBindStream() *bindStream {
	l := ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 1 << 16})
	s := &bindStream{ledger: l, request: &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: 500}, {Column: resources.Memory, Value: 1 << 30}, {Column: resources.Pods, Value: 1},
	}}}
	for i := range streamNodes {
		l.ObserveNode(ledger.NodeObservation{Name: nodeName(i), UID: types.UID(nodeName(i)), Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 64_000}, {Column: resources.Memory, Value: 256 << 30}, {Column: resources.Pods, Value: 110},
		}})
	}
	return s
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
}

func (s *bindStream) pod(i int) ledger.PodRef {
	return ledger.PodRef{
		Namespace: "production", Name: fmt.Sprintf("checkout-6b8d7c9f54-%06d", i),
		UID: types.UID(fmt.Sprintf("3f1c9a52-0000-4000-8000-%012d", i)),
	}
}

// bind begins a bind, ends it, and removes a pod that came long before.
func (s *bindStream) bind(tb testing.TB) {
	pod, node := s.pod(s.pods), nodeName(s.pods%streamNodes)
	_, refused := s.ledger.StartBind(&ledger.Placement{Pod: pod, Node: node, Request: s.request, Scheduler: v1.DefaultSchedulerName}, time.Now())
	require.Nil(tb, refused)
	s.ledger.ObservePod(ledger.PodObservation{Pod: pod, Node: node, Request: s.request, Scheduler: v1.DefaultSchedulerName})
	if s.pods >= streamNodes {
		s.ledger.RemovePod(s.pod(s.pods-streamNodes), 0)
	}
	s.pods++
}

// follow starts mirrors that follow over HTTP.
func (s *bindStream) follow(tb testing.TB, mirrors int) []*Mirror {
	tb.Helper()
	url, stop := serve(tb, s.ledger)
	tb.Cleanup(stop)
	following := make([]*Mirror, mirrors)
	for i := range following {
		following[i], stop = followHTTP(tb, url)
		tb.Cleanup(stop)
	}
	return following
}

// BenchmarkStream is the way of a change from the ledger of a server to mirrors, over HTTP: what server and mirrors
// together take for one change and one mirror. Pods come in bursts.
func BenchmarkStream(b *testing.B) {
	for _, mirrors := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("%d mirrors", mirrors), func(b *testing.B) { benchmarkStream(b, mirrors) })
	}
}

func benchmarkStream(b *testing.B, mirrors int) {
	const burst = 100
	s := newBindStream()
	following := s.follow(b, mirrors)
	await := func() {
		for _, m := range following {
			require.NoError(b, m.WaitFor(b.Context(), s.ledger.Revision()))
		}
	}
	for range streamNodes { // from here on each bind makes all its changes
		s.bind(b)
	}
	await()
	var meter costs.Meter
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	meter.Start()
	first := s.ledger.Revision()
	for b.Loop() {
		for range burst {
			s.bind(b)
		}
		await()
	}
	meter.Stop()
	runtime.ReadMemStats(&after)
	told := int(s.ledger.Revision()-first) * mirrors
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(told), "allocs/change")
	b.ReportMetric(0, "ns/op") // the time that passes says nothing here
	meter.Report(b, told)
}

// BenchmarkPacedStream has pods come at a rate that a cluster has, and measures all that a pod takes. What it takes without
// a mirror is the benchmark's own.
func BenchmarkPacedStream(b *testing.B) {
	for _, mirrors := range []int{0, 1, 4} {
		b.Run(fmt.Sprintf("%d mirrors", mirrors), func(b *testing.B) {
			s := newBindStream()
			for _, m := range s.follow(b, mirrors) {
				require.NoError(b, m.WaitFor(b.Context(), s.ledger.Revision()))
			}
			const rate = 250 // pods a second
			ticks := time.NewTicker(time.Second / rate)
			defer ticks.Stop()
			var meter costs.Meter
			meter.Start()
			pods := 0
			for b.Loop() {
				<-ticks.C
				s.bind(b)
				pods++
			}
			meter.Stop()
			meter.Report(b, pods)
		})
	}
}
