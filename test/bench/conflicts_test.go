package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// way is what stands between the schedulers of one cluster.
type way string

const (
	nothing way = "nothing"
	ledger  way = "ledger" // GlobalReserve
	pools   way = "pools"  // each has nodes of its own, as many as the others
	// steadyPools are pools where each scheduler wants as much as the others at all times, for which pools are made.
	steadyPools way = "steady-pools"
)

const (
	marketNodes = 48 // which 8 schedulers can share equally
	nodeMilli   = 16000
	warmUp      = 10 * time.Second
	watched     = 30 * time.Second
)

const (
	gangScheduler  = "gang-scheduler"
	naiveScheduler = "naive-scheduler"
)

var (
	// schedulerNames are in the order in which they come: all of a cluster take part when there are that many.
	schedulerNames = []string{"kube-0", gangScheduler, "kube-1", naiveScheduler, "kube-2", "kube-3", "kube-4", "kube-5"}

	schedulerCounts = []int{1, 2, 4, 8}
	fills           = []int{50, 80, 90, 98} // percent of the nodes' CPU that pods want
)

// BenchmarkConflicts has several schedulers place pods that come and go in one cluster, with nothing between them, with
// pools of nodes, and with GlobalReserve. It prints one line for each number of schedulers and each demand.
func BenchmarkConflicts(b *testing.B) {
	for b.Loop() {
		for _, how := range []way{nothing, pools, steadyPools, ledger} {
			b.Run(string(how), func(b *testing.B) { conflicts(b, how) })
		}
	}
}

func conflicts(b *testing.B, how way) {
	b.Helper()
	c := controlplane.StartT(b, controlplane.Options{})
	require.NoError(b, crd.Prepare(b.Context(), c))
	s := &schedulers{ControlPlane: c, way: how}
	for i := range marketNodes {
		labels := map[string]string{}
		for _, n := range schedulerCounts {
			labels[poolLabel(n)] = strconv.Itoa(i * n / marketNodes)
		}
		names, err := c.CreateNodes(b.Context(), 1, controlplane.NodeTemplate{
			Prefix: fmt.Sprintf("node-%d-", i), Labels: labels,
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(nodeMilli, resource.DecimalSI),
			},
		})
		require.NoError(b, err)
		s.nodes = append(s.nodes, names...)
	}
	if how == ledger {
		s.startLedger(b)
	}
	started := 0
	for _, n := range schedulerCounts {
		for ; started < n; started++ {
			s.start(b, started)
		}
		if n == 1 && how != nothing && how != ledger {
			continue // one pool is no pool
		}
		for _, fill := range fills {
			s.measure(b, n, fill)
		}
	}
}

// poolLabel is the label that says which of n pools a node is in.
func poolLabel(n int) string { return fmt.Sprintf("pool-of-%d", n) }

// schedulers are those of one cluster.
type schedulers struct {
	*controlplane.ControlPlane
	way    way
	nodes  []string
	server *clusterload.Server // nil without GlobalReserve
	naive  *clusterload.NaiveScheduler
}

func (s *schedulers) startLedger(b *testing.B) {
	b.Helper()
	webhook, err := clusterload.NewWebhook(s.ControlPlane)
	require.NoError(b, err)
	s.server = startNamed(b, s.ControlPlane, clusterload.ServerName, webhook.Args...)
	require.NoError(b, webhook.Install(b.Context(), s.ControlPlane, nil))
}

// start starts the next scheduler.
func (s *schedulers) start(b *testing.B, i int) {
	b.Helper()
	url := ""
	if s.server != nil {
		url = s.server.URL
	}
	switch name := schedulerNames[i]; name {
	case gangScheduler:
		_, err := clusterload.StartGangScheduler(b.Context(), s.ControlPlane, clusterload.GangSchedulerOptions{
			SchedulerName: name, ServerURL: url, Command: []string{testbed.Program(b, "gangscheduler")},
		})
		require.NoError(b, err)
	case naiveScheduler:
		s.naive = &clusterload.NaiveScheduler{Client: s.Client(), Name: name, Namespace: namespace}
	default:
		config, err := clusterload.SchedulerConfig("second-scheduler.yaml", url)
		require.NoError(b, err)
		config = bytes.ReplaceAll(config, []byte("second-scheduler"), []byte(name))
		require.NoError(b, s.StartScheduler(b.Context(), name, config))
	}
}

// measure lets n schedulers place what wants a share of the nodes, and reports what became of it.
func (s *schedulers) measure(b *testing.B, n, fill int) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	m := newMarket(s.ControlPlane, s.way, n, fill)
	if n > 2 {
		s.naive.Nodes = s.nodes
		if m.inPools() {
			each := len(s.nodes) / n
			s.naive.Nodes = s.nodes[3*each : 4*each]
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.naive.Run(ctx)
		}()
		defer func() { <-stopped }()
	}
	defer stop()
	m.run(ctx, b, warmUp)
	before := s.counted(ctx, b)
	m.reset()
	m.run(ctx, b, watched)
	fmt.Printf("conflicts: way=%s schedulers=%d fill=%d %s\n", s.way, n, fill, m.report(s.counted(ctx, b).minus(before)))
	stop()
	require.NoError(b, clusterload.DeletePods(b.Context(), s.Client(), namespace))
}

// counts are what the server has counted so far.
type counts struct {
	binds, refusedBinds, gangs, refusedGangs, refusedNaive float64 // decisions
	wakeups, vain                                          float64
}

func (c counts) minus(o counts) counts {
	return counts{
		c.binds - o.binds, c.refusedBinds - o.refusedBinds, c.gangs - o.gangs, c.refusedGangs - o.refusedGangs,
		c.refusedNaive - o.refusedNaive, c.wakeups - o.wakeups, c.vain - o.vain,
	}
}

func (s *schedulers) counted(ctx context.Context, b *testing.B) counts {
	b.Helper()
	if s.server == nil {
		return counts{}
	}
	metrics, err := testbed.Caller{URL: s.server.URL}.Metrics(ctx)
	require.NoError(b, err)
	const decisions = "globalreserve_decisions_total"
	return counts{
		metrics.Sum(decisions, "verb", "bind"), metrics.Sum(decisions, "verb", "bind", "result", "refused"),
		metrics.Sum(decisions, "verb", "reserve"), metrics.Sum(decisions, "verb", "reserve", "result", "refused"),
		metrics.Sum(decisions, "verb", "admission", "result", "refused"),
		metrics.Sum("globalreserve_wakeups_total"), metrics.Sum("globalreserve_wakeups_in_vain_total"),
	}
}
