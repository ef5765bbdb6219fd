package bench

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	ratePods   = 2000
	runTimeout = 5 * time.Minute
)

// rateRounds is how often each setup runs. They take turns, and the ratios are taken within a round, so
// that what else the machine does falls on all of them alike.
var rateRounds = flag.Int("rate-rounds", 3, "how often each setup of BenchmarkSchedulingRate runs")

// setup is a scheduler with what stands behind it.
type setup struct {
	name string
	// start runs the server or the extender and returns its process and URL; nil where there is none. It runs before
	// the pods are there, as it does in a cluster: a server that starts later wakes all that wait.
	start starter
	// scheduler starts the scheduler for the first time.
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

// cpu is the processor time per pod of scheduler and server together, in milliseconds.
func (r run) cpu() float64 { return float64((r.extenderCPU + r.schedulerCPU).Microseconds()) / 1000 }

func (r run) String() string {
	return fmt.Sprintf("%6.1f pods/s, processor time per pod: extender %s, scheduler %s", r.podsPerSecond,
		r.extenderCPU.Round(time.Microsecond), r.schedulerCPU.Round(time.Microsecond))
}

// plain is a kube-scheduler without GlobalReserve, and passing the same with an extender that is asked about all that
// one can be asked about at least. Their percentageOfNodesToScore is to be filled in: the shipped files have a small
// one, so they are compared with schedulers that look at as many nodes. What else is measured are the files as they are
// shipped, of which the harness changes URLs, the kubeconfig, limits of the client and leader election, in all alike.
const (
	plain = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, percentageOfNodesToScore: %d,
  profiles: [{schedulerName: default-scheduler}]}`

	passing = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, percentageOfNodesToScore: %d,
  profiles: [{schedulerName: default-scheduler}],
  extenders: [{urlPrefix: %q, filterVerb: filter, bindVerb: bind, nodeCacheCapable: true, httpTimeout: 10s}]}`

	// defaultSample has kube-scheduler choose: 10% of 5,000 nodes.
	defaultSample = 0
	// shippedSample is that of the files of scheduler-config/.
	shippedSample = 2
)

// The setups that the others are compared with.
const (
	plainDefaults = iota
	plainSample
	passthroughSample
)

// BenchmarkSchedulingRate has one scheduler bind 2,000 waiting pods on 5,000 nodes, again and again: a plain
// kube-scheduler with its own sample of nodes and with that of the shipped files, one with an extender that does
// nothing, and each of the configurations that people deploy.
func BenchmarkSchedulingRate(b *testing.B) {
	c := startCluster(b)
	server := globalReserve()
	setups := []setup{
		{name: "plain", scheduler: plainScheduler(defaultSample)},
		{name: "plain, 2%", scheduler: plainScheduler(shippedSample)},
		{
			name: "passthrough, 2%", start: passthrough(buildPassthrough(b)),
			scheduler: kubeScheduler(func(url string) ([]byte, error) {
				return fmt.Appendf(nil, passing, shippedSample, url), nil
			}),
		},
		{name: "default-scheduler.yaml", start: server, scheduler: shipped("default-scheduler.yaml")},
		{name: "two-profiles.yaml", start: server, scheduler: shipped("two-profiles.yaml")},
		{name: "plugin/local.yaml", scheduler: pluginScheduler},
	}
	for b.Loop() {
		compare(b, c, setups)
	}
}

// compare runs setups in turn and reports what each came to beside the first two.
func compare(b *testing.B, c *controlplane.ControlPlane, setups []setup) {
	b.Helper()
	runs := map[string][]run{}
	for round := range *rateRounds {
		for i := range setups {
			s := setups[(i+round)%len(setups)] // none is always the first, or comes always after the same one
			got := measure(b, c, s)
			runs[s.name] = append(runs[s.name], got)
			say("round %d of %d: %-24s %s", round+1, *rateRounds, s.name, got)
		}
	}
	say("SUMMARY %d nodes, %d pods, medians of %d, processor time of scheduler and server per pod", nodes, ratePods,
		*rateRounds)
	say("SUMMARY | scheduler | pods/s | of plain | of plain, 2%% | of passthrough, 2%% | ms/pod | of plain, 2%% |")
	for _, s := range setups {
		got := runs[s.name]
		over := func(base int, of func(run) float64) float64 { return ratio(got, runs[setups[base].name], of) }
		ofPlain, cpu := over(plainSample, run.rate), over(plainSample, run.cpu)
		name := strings.ReplaceAll(s.name, ", ", "-")
		b.ReportMetric(typical(got, run.rate), name+"-pods/s")
		b.ReportMetric(ofPlain, name+"-x-plain-2%")
		b.ReportMetric(cpu, name+"-cpu-x-plain-2%")
		say("SUMMARY | %s | %.0f | %.2f | %.2f | %.2f | %.1f | %.2f |", s.name, typical(got, run.rate),
			over(plainDefaults, run.rate), ofPlain, over(passthroughSample, run.rate), typical(got, run.cpu), cpu)
	}
}

// typical is the median of the rounds.
func typical(runs []run, of func(run) float64) float64 {
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = of(r)
	}
	return median(values)
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// ratio is the median of the ratios, round by round.
func ratio(over, under []run, of func(run) float64) float64 {
	ratios := make([]float64, len(over))
	for i := range ratios {
		ratios[i] = of(over[i]) / of(under[i])
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
	binds := watchPods(ctx, b, c, namespace, latest(pods), "spec.nodeName!=")
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

// watchPods watches the pods of a namespace that a field selector selects, from a resource version on. The API server
// may end a watch when the machine is busy.
func watchPods(ctx context.Context, b *testing.B, c *controlplane.ControlPlane, namespace, version, selector string,
) watch.Interface {
	b.Helper()
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return c.Client().CoreV1().Pods(namespace).Watch(ctx, o)
		},
	})
	require.NoError(b, err)
	return watcher
}

// usedBy is the processor time of a process, 0 for none.
func usedBy(b *testing.B, process *controlplane.Process) time.Duration {
	b.Helper()
	if process == nil {
		return 0
	}
	at, err := procfs.NewProc(process.PID())
	require.NoError(b, err)
	stat, err := at.Stat()
	require.NoError(b, err)
	return time.Duration(stat.CPUTime() * float64(time.Second))
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

// startScheduler starts the setup's scheduler, the first time with its configuration.
func startScheduler(b *testing.B, c *controlplane.ControlPlane, s setup, url string) *controlplane.Process {
	b.Helper()
	name := "scheduler-" + strings.NewReplacer("/", "-", ".yaml", "", ", ", "-", "%", "").Replace(s.name)
	process, err := c.Process(name)
	if err != nil {
		return s.scheduler(b, c, name, url)
	}
	require.NoError(b, process.Start(b.Context()))
	return process
}

// kubeScheduler starts a kube-scheduler with a configuration.
func kubeScheduler(config func(url string) ([]byte, error)) func(*testing.B, *controlplane.ControlPlane, string,
	string) *controlplane.Process {
	return func(b *testing.B, c *controlplane.ControlPlane, name, url string) *controlplane.Process {
		b.Helper()
		content, err := config(url)
		require.NoError(b, err)
		require.NoError(b, c.StartScheduler(b.Context(), name, content))
		process, err := c.Process(name)
		require.NoError(b, err)
		return process
	}
}

func plainScheduler(sample int) func(*testing.B, *controlplane.ControlPlane, string, string) *controlplane.Process {
	return kubeScheduler(func(string) ([]byte, error) { return fmt.Appendf(nil, plain, sample), nil })
}

// shipped starts a kube-scheduler with a file of scheduler-config/.
func shipped(file string) func(*testing.B, *controlplane.ControlPlane, string, string) *controlplane.Process {
	return kubeScheduler(func(url string) ([]byte, error) { return clusterload.SchedulerConfig(file, url) })
}

// pluginScheduler starts a globalreserve-scheduler with the file of scheduler-config/plugin.
func pluginScheduler(b *testing.B, c *controlplane.ControlPlane, name, _ string) *controlplane.Process {
	b.Helper()
	scheduler, err := clusterload.StartPluginScheduler(b.Context(), c, clusterload.PluginSchedulerOptions{
		Name: name, SchedulerName: "default-scheduler",
	})
	require.NoError(b, err)
	return scheduler.Process
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
