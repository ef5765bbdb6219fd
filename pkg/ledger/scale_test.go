//go:build unix

package ledger_test

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/costs"
)

// The size of BenchmarkScale. `make bench-scale` runs it with up to 130,000 nodes and 1,000,000 pods.
var (
	scaleNodes = flag.Int("scale-nodes", 5_000, "how many nodes BenchmarkScale has")
	scalePods  = flag.Int("scale-pods", 100_000, "how many pods BenchmarkScale has")
)

// scalePod observes a pod as the API server tells of one: nothing of it is in memory already but what comes with
// every pod, and every third pod asks for an amount of its own.
func scalePod(i int) ledger.PodObservation {
	return ledger.PodObservation{
		Pod: ledger.PodRef{
			Namespace: "ns", Name: fmt.Sprintf("worker-7c9f8d6b5-%06d", i),
			UID: types.UID(fmt.Sprintf("4f1c2d3e-0000-4000-8000-%012d", i)),
		},
		Node: nodeName(i % *scaleNodes), Request: request(100+int64(i%3), 128<<20), Scheduler: "default-scheduler",
		ResourceVersion: uint64(i + 1),
	}
}

// scaled returns a ledger of many nodes and pods, with capacity left on every node.
func scaled() *ledger.Ledger {
	l := ledger.New(ledger.Options{})
	for i := range *scaleNodes {
		l.ObserveNode(offer(nodeName(i), 64_000, 256<<30, 250))
	}
	for i := range *scalePods {
		l.ObservePod(scalePod(i))
	}
	return l
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkScale measures the ledger of a cluster of any size.
func BenchmarkScale(b *testing.B) {
	before := heap()
	var fill costs.Meter
	fill.Start()
	l := scaled()
	fill.Stop()
	used := heap() - before
	b.Run("Fill", func(b *testing.B) {
		for b.Loop() {
		}
		fill.Report(b, *scalePods)
		b.ReportMetric(float64(used)/float64(*scalePods), "B/pod")
		b.ReportMetric(float64(used)/(1<<20), "MiB")
	})
	b.Run("FitAll", func(b *testing.B) { benchmarkFitAll(b, l) })
	b.Run("Decide", func(b *testing.B) { benchmarkDecide(b, l) })
	b.Run("DecideBy8", func(b *testing.B) { benchmarkDecideBy8(b, l) })
	b.Run("Relist", func(b *testing.B) { benchmarkRelist(b, l) })
	b.Run("TakeOver", func(b *testing.B) { benchmarkTakeOver(b, l) })
	runtime.KeepAlive(l)
}

// benchmarkFitAll is the question where one pod fits, of all nodes.
func benchmarkFitAll(b *testing.B, l *ledger.Ledger) {
	p := ledger.Placement{Pod: podRef("asking"), Request: request(1000, 4<<30)}
	b.ReportAllocs()
	var m costs.Meter
	m.Start()
	for b.Loop() {
		if n := fitting(l, &p); n != *scaleNodes {
			b.Fatal(n)
		}
	}
	m.Stop()
	m.Report(b, b.N)
}

// fitting is on how many nodes a pod fits.
func fitting(l *ledger.Ledger, p *ledger.Placement) (n int) {
	l.FitAll(p, func(_ string, v ledger.Verdict) bool {
		if v.Reason == ledger.Fits {
			n++
		}
		return true
	})
	return n
}

// contenders are pods to decide on, on nodes far apart.
func contenders(count int) []ledger.Placement {
	pods := make([]ledger.Placement, count)
	r := request(1000, 1<<30)
	for i := range pods {
		pods[i] = ledger.Placement{
			Pod: podRef(fmt.Sprintf("new-%d", i)), Node: nodeName(i * 37 % *scaleNodes), Request: r,
			Scheduler: "s",
		}
	}
	return pods
}

// benchmarkDecide is one decision: a pod's bind may begin. Taking it back is not in the measure.
func benchmarkDecide(b *testing.B, l *ledger.Ledger) {
	pods := contenders(4096)
	var m costs.Meter
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		batch := pods[:min(len(pods), b.N-done)]
		m.Start()
		for i := range batch {
			if _, rejection := l.StartBind(&batch[i], start); rejection != nil {
				b.Fatal(rejection.Message())
			}
		}
		m.Stop()
		done += len(batch)
		b.StopTimer()
		for i := range batch {
			l.BindFailed(batch[i].Pod, batch[i].Node)
		}
		b.StartTimer()
	}
	m.Report(b, b.N)
}

// benchmarkDecideBy8 is a decision and taking it back, by eight callers at once.
func benchmarkDecideBy8(b *testing.B, l *ledger.Ledger) {
	const callers = 8
	pods := contenders(callers * 512)
	var next atomic.Int64
	var m costs.Meter
	b.SetParallelism((callers + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	m.Start()
	b.RunParallel(func(pb *testing.PB) {
		first := int(next.Add(1)-1) % callers * 512
		for i := 0; pb.Next(); i++ {
			p := &pods[first+i%512]
			if _, rejection := l.StartBind(p, start); rejection != nil {
				panic(rejection.Message())
			}
			l.BindFailed(p.Pod, p.Node)
		}
	})
	m.Stop()
	m.Report(b, b.N)
}

// benchmarkRelist is what a gap in the watch costs the ledger: it is told of every pod again.
func benchmarkRelist(b *testing.B, l *ledger.Ledger) {
	var m costs.Meter
	told := make([]ledger.PodObservation, min(1<<14, *scalePods))
	for done := 0; done < b.N; {
		b.StopTimer()
		batch := told[:min(len(told), b.N-done)]
		for i := range batch {
			batch[i] = scalePod((done + i) % *scalePods)
		}
		b.StartTimer()
		m.Start()
		for i := range batch {
			if l.ObservePod(batch[i]) != ledger.ObservedNothing {
				b.Fatal("news of ", batch[i].Pod.Name)
			}
		}
		m.Stop()
		done += len(batch)
	}
	m.Report(b, b.N)
}

// benchmarkTakeOver is what the next leader does with an account that it has followed: begin revisions anew, learn the
// limits, and decide.
func benchmarkTakeOver(b *testing.B, l *ledger.Ledger) {
	p := contenders(1)[0]
	limits := map[string]*ledger.Limits{"": {Use: []resources.Amount{{Column: resources.CPU, Value: 1 << 50}}}}
	var m costs.Meter
	b.ReportAllocs()
	m.Start()
	for b.Loop() {
		l.Advance(l.Revision() + 1)
		l.SetLimits(ledger.OfNamespace, limits)
		if _, rejection := l.StartBind(&p, start); rejection != nil {
			b.Fatal(rejection.Message())
		}
		l.BindFailed(p.Pod, p.Node)
		l.SetLimits(ledger.OfNamespace, nil)
	}
	m.Stop()
	m.Report(b, b.N)
}
