package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	benchNodes       = 5_000
	benchAllocations = 100_000
)

// fullCluster returns a ledger of 5,000 nodes with 64 CPUs and 256 GiB each, on
// which 100,000 pods are bound; each node has capacity for some more. It has seen so
// many changes that its journal and its memory of gone pods are full.
func fullCluster(b testing.TB) *ledger.Ledger {
	b.Helper()
	l := ledger.New(ledger.Options{})
	for i := range benchNodes {
		l.ObserveNode(offer(nodeName(i), 64_000, 256<<30, 110))
	}
	shared := request(2000, 8<<30)
	for i := range benchAllocations {
		l.ObservePod(ledger.PodObservation{Pod: podRef(fmt.Sprintf("bound-%d", i)), Node: nodeName(i % benchNodes), Request: shared})
	}
	for i := range 40_000 {
		pod := podRef(fmt.Sprintf("gone-%d", i))
		l.ObservePod(ledger.PodObservation{Pod: pod, Node: nodeName(i % benchNodes), Request: shared})
		l.RemovePod(pod, 1)
	}
	return l
}

// newcomers are pods to place, one after another, on nodes far apart. There are
// more of them than UIDs of gone pods are remembered.
func newcomers(count int) []ledger.Placement {
	placements := make([]ledger.Placement, count)
	r := request(1000, 4<<30)
	for i := range placements {
		placements[i] = ledger.Placement{
			Pod: podRef(fmt.Sprintf("new-%d", i)), Node: nodeName(i * 37 % benchNodes), Request: r, Scheduler: "default-scheduler",
		}
	}
	return placements
}

// BenchmarkPod measures the whole life of a pod in the ledger: reserve, confirm,
// remove.
func BenchmarkPod(b *testing.B) {
	l := fullCluster(b)
	pods := newcomers(1 << 17)
	i := 0 // goes on over all runs: a pod that is gone is refused for a while
	b.Run("StartBind", func(b *testing.B) {
		b.ReportAllocs()
		for ; b.Loop(); i++ {
			p := &pods[i%len(pods)]
			if _, rejection := l.StartBind(p, start); rejection != nil {
				b.Fatal(rejection.Message())
			}
			l.Confirm(p.Pod, p.Node)
			l.RemovePod(p.Pod, 7)
		}
	})
	b.Run("Reserve", func(b *testing.B) {
		b.ReportAllocs()
		plan := ledger.Plan{Mode: ledger.AllOrNothing, Slots: make([]ledger.Slot, 1)}
		for ; b.Loop(); i++ {
			p := &pods[i%len(pods)]
			plan.Slots[0] = p.Slot(start.Add(1))
			if result := l.Reserve(plan, start); result.Granted != 1 {
				b.Fatal(result.Rejections[0].Message())
			}
			if _, rejection := l.StartBind(p, start); rejection != nil {
				b.Fatal(rejection.Message())
			}
			l.Confirm(p.Pod, p.Node)
			l.RemovePod(p.Pod, 7)
		}
	})
}

// BenchmarkFit measures the question whether one pod fits.
func BenchmarkFit(b *testing.B) {
	l := fullCluster(b)
	pod, req := podRef("asking"), request(1000, 4<<30)
	b.Run("FitAll/5000nodes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			l.FitAll(&ledger.Placement{Request: req}, func(_ string, v ledger.Verdict) bool {
				if v.Reason == ledger.Fits {
					n++
				}
				return true
			})
			if n != benchNodes {
				b.Fatal(n)
			}
		}
	})
	for _, count := range []int{500, benchNodes} {
		b.Run(fmt.Sprintf("AppendFit/%dnames", count), func(b *testing.B) {
			names := make([]string, count)
			for i := range names {
				names[i] = nodeName(i * 7 % benchNodes)
			}
			verdicts := make([]ledger.Verdict, 0, count)
			b.ReportAllocs()
			for b.Loop() {
				verdicts = l.AppendFit(verdicts[:0], &ledger.Placement{Pod: pod, Request: req}, names)
			}
			require.Equal(b, ledger.Fits, verdicts[count-1].Reason)
		})
	}
}

// BenchmarkPlan measures an all-or-nothing plan of 1,000 pods over 1,000 nodes:
// one that is granted (and given back, outside the measure), one that fails at
// its last pod, and one that is only asked for.
func BenchmarkPlan(b *testing.B) {
	const size = 1000
	l := fullCluster(b)
	pods := newcomers(size)
	for i := range pods {
		pods[i].Node = nodeName(i)
	}
	plan := ledger.NewPlan(pods, ledger.AllOrNothing, start.Add(1))
	b.Run("granted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if l.Reserve(plan, start).Granted != size {
				b.Fatal("refused")
			}
			b.StopTimer()
			l.Unreserve(pods)
			b.StartTimer()
		}
	})
	refused := ledger.NewPlan(pods, ledger.AllOrNothing, start.Add(1))
	refused.Slots[size-1].Request = request(65_000, 1)
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if l.Reserve(refused, start).Granted != 0 {
				b.Fatal("granted")
			}
		}
	})
	b.Run("dry-run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Try(func(t *ledger.Trial) {
				if t.Reserve(plan).Granted != size {
					b.Fatal("refused")
				}
			})
		}
	})
}

// BenchmarkCrowdedNode shows that a pod's cost does not grow with the number of
// pods on its node: to ask, to start a bind, and to take it back.
func BenchmarkCrowdedNode(b *testing.B) {
	for _, crowd := range []int{10, 50, 500} {
		for _, with := range []string{"plain", "hostPorts"} {
			b.Run(fmt.Sprintf("%dpods/%s", crowd, with), func(b *testing.B) {
				benchmarkCrowdedNode(b, crowd, with == "hostPorts")
			})
		}
	}
}

func benchmarkCrowdedNode(b *testing.B, crowd int, hostPorts bool) {
	ask := func(i int) *resources.Request {
		if hostPorts {
			return request(100, 1<<20, hostPort(int32(1000+i)))
		}
		return request(100, 1<<20)
	}
	l := ledger.New(ledger.Options{})
	l.ObserveNode(offer("node", 1_000_000, 1<<40, 1000))
	for i := range crowd {
		l.ObservePod(ledger.PodObservation{Pod: podRef(fmt.Sprintf("bound-%d", i)), Node: "node", Request: ask(i)})
	}
	p := ledger.Placement{Pod: podRef("new"), Node: "node", Request: ask(crowd)}
	names := []string{"node"}
	var verdicts []ledger.Verdict
	b.ReportAllocs()
	for b.Loop() {
		verdicts = l.AppendFit(verdicts[:0], &p, names)
		if _, rejection := l.StartBind(&p, start); rejection != nil {
			b.Fatal(rejection.Message())
		}
		l.BindFailed(p.Pod, p.Node)
	}
	require.Equal(b, ledger.Fits, verdicts[0].Reason)
}

// BenchmarkRefusals measures one look at all nodes.
func BenchmarkRefusals(b *testing.B) {
	l := fullCluster(b)
	pods := newcomers(1 << 10)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, nodes, ok := l.Refusals(&pods[i%len(pods)], 512); !ok || nodes != benchNodes {
			b.Fatal(fmt.Sprint(nodes, ok))
		}
	}
}
