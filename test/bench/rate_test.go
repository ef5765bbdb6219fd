package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	ratePods = 2000
	// rateRounds is how often each setup runs. They take turns, and the ratios are taken within a
	// round, so that what else the machine does falls on all of them alike.
	rateRounds = 5
	runTimeout = 5 * time.Minute
)

// setup is what stands behind the kube-scheduler.
type setup struct {
	name string
	// start runs the extender and returns its process and URL; nil where there is none. It runs before
	// the pods are there, as it does in a cluster: a server that starts later wakes all that wait.
	start starter
	// verbs are those of the extender that the scheduler is to call.
	verbs []string
	// scheduler starts another scheduler than kube-scheduler; nil where it is that one.
	scheduler func(b *testing.B, c *controlplane.ControlPlane, name, url string) *controlplane.Process
}

type starter func(b *testing.B, c *controlplane.ControlPlane) (process *controlplane.Process, url string)

// run is what one run came to. The processor times per pod are steadier than the rate on a machine
// that does other things too.
type run struct {
	podsPerSecond             float64
	extenderCPU, schedulerCPU time.Duration // per pod
}

func (r run) rate() float64 { return r.podsPerSecond }

func (r run) String() string {
	return fmt.Sprintf("%6.1f pods/s, processor time per pod: extender %s, scheduler %s", r.podsPerSecond,
		r.extenderCPU.Round(time.Microsecond), r.schedulerCPU.Round(time.Microsecond))
}

// BenchmarkSchedulingRate has one kube-scheduler bind 2,000 waiting pods on 5,000 nodes, again and again
// with another extender behind it.
func BenchmarkSchedulingRate(b *testing.B) {
	c := startCluster(b)
	reserving := globalReserve()
	setups := []setup{
		{name: "none"},
		{name: "passthrough", start: passthrough(buildPassthrough(b)), verbs: []string{"filterVerb", "bindVerb"}},
		{name: "globalreserve", start: reserving, verbs: []string{"filterVerb", "bindVerb"}},
		{name: "globalreserve-all-verbs", start: reserving, verbs: []string{"filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"}},
	}
	for b.Loop() {
		runs := compare(b, c, setups, rateRounds)
		toPass := ratio(runs["globalreserve"], runs["passthrough"])
		b.ReportMetric(toPass, "x-passthrough")
		b.ReportMetric(ratio(runs["globalreserve"], runs["none"]), "x-none")
		b.Logf("SUMMARY GlobalReserve over passthrough: %.2f", toPass)
	}
}

// compare runs setups in turn and reports what each came to beside the first.
func compare(b *testing.B, c *controlplane.ControlPlane, setups []setup, rounds int) map[string][]run {
	b.Helper()
	runs := map[string][]run{}
	for round := range rounds {
		for _, s := range setups {
			got := measure(b, c, s)
			runs[s.name] = append(runs[s.name], got)
			say("round %d of %d: %-24s %s", round+1, rounds, s.name, got)
		}
	}
	base := setups[0].name
	for _, s := range setups {
		typical := func(of func(run) float64) float64 {
			values := make([]float64, 0, rounds)
			for _, r := range runs[s.name] {
				values = append(values, of(r))
			}
			return median(values)
		}
		rate, toBase := typical(run.rate), ratio(runs[s.name], runs[base])
		b.ReportMetric(rate, s.name+"-pods/s")
		b.Logf("SUMMARY %d nodes, %d pods, medians of %d, %s: %.0f pods/s (%.2f of %s), processor time per pod: extender %.0f µs, scheduler %.0f µs",
			nodes, ratePods, rounds, s.name, rate, toBase, base,
			typical(func(r run) float64 { return float64(r.extenderCPU.Microseconds()) }),
			typical(func(r run) float64 { return float64(r.schedulerCPU.Microseconds()) }))
	}
	return runs
}

// ratio is the median of the ratios of the rates, round by round.
func ratio(over, under []run) float64 {
	ratios := make([]float64, len(over))
	for i := range ratios {
		ratios[i] = over[i].podsPerSecond / under[i].podsPerSecond
	}
	return median(ratios)
}

func globalReserve() starter {
	var server *clusterload.Server
	return func(b *testing.B, c *controlplane.ControlPlane) (*controlplane.Process, string) {
		b.Helper()
		if server == nil {
			server = startServer(b, c)
		} else {
			require.NoError(b, server.Start(b.Context()))
		}
		return server.Process, server.URL
	}
}

func passthrough(binary string) starter {
	var process *controlplane.Process
	var url string
	return func(b *testing.B, c *controlplane.ControlPlane) (*controlplane.Process, string) {
		b.Helper()
		if process != nil {
			require.NoError(b, process.Start(b.Context()))
			return process, url
		}
		port, err := c.FreePort()
		require.NoError(b, err)
		kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
		require.NoError(b, err)
		address := "127.0.0.1:" + strconv.Itoa(port)
		url = "http://" + address
		process, err = c.StartProcess(b.Context(), controlplane.ProcessOptions{
			Name: "passthrough", Path: binary, Args: []string{"--kubeconfig=" + kubeconfig, "--address=" + address},
			Ready: controlplane.HTTPReady(url+"/readyz", nil),
		})
		require.NoError(b, err)
		return process, url
	}
}

// measure runs one setup: its rate is that from the first bind to the last.
func measure(b *testing.B, c *controlplane.ControlPlane, s setup) run {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), runTimeout)
	defer cancel()
	var extender *controlplane.Process
	var url string
	if s.start != nil {
		extender, url = s.start(b, c)
	}
	pods, err := createPods(ctx, c.Client(), ratePods, nil)
	require.NoError(b, err)
	// The API server may end a watch when the machine is busy.
	binds, err := toolswatch.NewRetryWatcherWithContext(ctx, latest(pods), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "spec.nodeName!="
			return c.Client().CoreV1().Pods(namespace).Watch(ctx, o)
		},
	})
	require.NoError(b, err)
	defer binds.Stop()
	scheduler := startScheduler(b, c, s, url)
	result := run{extenderCPU: -usedBy(b, extender), schedulerCPU: -usedBy(b, scheduler)}
	result.podsPerSecond, err = awaitBinds(ctx, binds)
	require.NoError(b, err, s.name)
	result.extenderCPU = (result.extenderCPU + usedBy(b, extender)) / ratePods
	result.schedulerCPU = (result.schedulerCPU + usedBy(b, scheduler)) / ratePods
	for _, process := range []*controlplane.Process{scheduler, extender} {
		if process != nil {
			_, err = process.Stop()
			require.NoError(b, err)
		}
	}
	require.NoError(b, clusterload.DeletePods(ctx, c.Client(), namespace))
	return result
}

// usedBy is the processor time of a process, 0 for none.
func usedBy(b *testing.B, process *controlplane.Process) time.Duration {
	b.Helper()
	if process == nil {
		return 0
	}
	used, err := cpuTime(process.PID())
	require.NoError(b, err)
	return used
}

// latest returns a resource version from which a watch shows all that happens to the pods from now on.
func latest(pods []*corev1.Pod) string {
	newest := slices.MaxFunc(pods, func(x, y *corev1.Pod) int {
		nx, _ := strconv.ParseUint(x.ResourceVersion, 10, 64)
		ny, _ := strconv.ParseUint(y.ResourceVersion, 10, 64)
		if nx < ny {
			return -1
		}
		return 1
	})
	return newest.ResourceVersion
}

// startScheduler starts the setup's kube-scheduler, the first time with its configuration. Nodes are
// sampled as is kube-scheduler's default: at 5,000 nodes it looks for 500 that are feasible.
func startScheduler(b *testing.B, c *controlplane.ControlPlane, s setup, url string) *controlplane.Process {
	b.Helper()
	name := "scheduler-" + s.name
	if process, err := c.Process(name); err == nil {
		require.NoError(b, process.Start(b.Context()))
		return process
	}
	if s.scheduler != nil {
		return s.scheduler(b, c, name, url)
	}
	content, err := clusterload.SchedulerConfig("default-scheduler.yaml", url)
	require.NoError(b, err)
	config := map[string]any{}
	require.NoError(b, yaml.Unmarshal(content, &config))
	delete(config, "percentageOfNodesToScore")
	if url != "" {
		keepVerbs(config["extenders"].([]any)[0].(map[string]any), s.verbs)
	}
	content, err = yaml.Marshal(config)
	require.NoError(b, err)
	require.NoError(b, c.StartScheduler(b.Context(), name, content))
	process, err := c.Process(name)
	require.NoError(b, err)
	return process
}

func keepVerbs(extender map[string]any, verbs []string) {
	for _, verb := range []string{"filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"} {
		if !slices.Contains(verbs, verb) {
			delete(extender, verb)
		}
	}
}

// awaitBinds counts the pods that get a node, until all have one.
func awaitBinds(ctx context.Context, binds watch.Interface) (float64, error) {
	var first time.Time
	bound := 0
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d pods were bound: %w", bound, ratePods, ctx.Err())
		case event, open := <-binds.ResultChan():
			if !open {
				return 0, fmt.Errorf("the watch ended after %d of %d binds", bound, ratePods)
			}
			if event.Type != watch.Added { // a pod comes into the selection when it is bound
				continue
			}
			if bound++; bound == 1 {
				first = time.Now()
			}
			if bound == ratePods {
				return float64(ratePods-1) / time.Since(first).Seconds(), nil
			}
		}
	}
}
