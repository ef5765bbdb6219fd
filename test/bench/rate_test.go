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
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	ratePods = 2000
	// rateRounds is how often each setup runs. They take turns, and the ratios are taken within a
	// round, so that what else the machine does falls on all of them alike.
	rateRounds = 3
	runTimeout = 5 * time.Minute
)

// setup is what stands behind the kube-scheduler.
type setup struct {
	name string
	// start runs the extender, if there is one, and returns its URL and what ends it.
	start func(b *testing.B, c *controlplane.ControlPlane) (url string, stop func())
	// verbs are those of the extender that the scheduler is to call.
	verbs []string
}

// BenchmarkSchedulingRate has one kube-scheduler bind 2,000 waiting pods on 5,000 nodes, again and again
// with another extender behind it.
func BenchmarkSchedulingRate(b *testing.B) {
	c := startCluster(b)
	reserving := globalReserve()
	setups := []setup{
		{name: "none", start: func(*testing.B, *controlplane.ControlPlane) (string, func()) { return "", func() {} }},
		{name: "passthrough", start: passthrough(buildPassthrough(b)), verbs: []string{"filterVerb", "bindVerb"}},
		{name: "globalreserve", start: reserving, verbs: []string{"filterVerb", "bindVerb"}},
		{name: "globalreserve-all-verbs", start: reserving, verbs: []string{"filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"}},
	}
	for b.Loop() {
		rates := map[string][]float64{}
		for round := range rateRounds {
			for _, s := range setups {
				rate := measureRate(b, c, s)
				rates[s.name] = append(rates[s.name], rate)
				say("round %d of %d: %-24s %6.1f pods/s", round+1, rateRounds, s.name, rate)
			}
		}
		reportRates(b, rates)
	}
}

func reportRates(b *testing.B, rates map[string][]float64) {
	b.Helper()
	for name, values := range rates {
		b.ReportMetric(median(values), name+"-pods/s")
	}
	ratio := func(over, under string) float64 {
		ratios := make([]float64, rateRounds)
		for i := range ratios {
			ratios[i] = rates[over][i] / rates[under][i]
		}
		return median(ratios)
	}
	toPass, toNone := ratio("globalreserve", "passthrough"), ratio("globalreserve", "none")
	b.ReportMetric(toPass, "x-passthrough")
	b.ReportMetric(toNone, "x-none")
	b.Logf("SUMMARY %d nodes, %d pods, medians of %d: no extender %.0f pods/s, passthrough %.0f, GlobalReserve %.0f (all verbs %.0f); "+
		"GlobalReserve over passthrough %.2f, over none %.2f; passthrough over none %.2f; all verbs over none %.2f",
		nodes, ratePods, rateRounds, median(rates["none"]), median(rates["passthrough"]), median(rates["globalreserve"]),
		median(rates["globalreserve-all-verbs"]), toPass, toNone, ratio("passthrough", "none"), ratio("globalreserve-all-verbs", "none"))
}

func globalReserve() func(*testing.B, *controlplane.ControlPlane) (string, func()) {
	var server *clusterload.Server
	return func(b *testing.B, c *controlplane.ControlPlane) (string, func()) {
		b.Helper()
		if server == nil {
			server = startServer(b, c)
		} else {
			require.NoError(b, server.Start(b.Context()))
		}
		return server.URL, func() { stop(b, server.Process) }
	}
}

func stop(b *testing.B, process *controlplane.Process) {
	b.Helper()
	_, err := process.Stop()
	require.NoError(b, err)
}

func passthrough(binary string) func(*testing.B, *controlplane.ControlPlane) (string, func()) {
	var process *controlplane.Process
	var url string
	return func(b *testing.B, c *controlplane.ControlPlane) (string, func()) {
		b.Helper()
		if process != nil {
			require.NoError(b, process.Start(b.Context()))
			return url, func() { stop(b, process) }
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
		return url, func() { stop(b, process) }
	}
}

// measureRate runs one setup and returns its pods per second, from the first bind to the last.
func measureRate(b *testing.B, c *controlplane.ControlPlane, s setup) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), runTimeout)
	defer cancel()
	pods, err := createPods(ctx, c.Client(), ratePods, nil)
	require.NoError(b, err)
	binds, err := c.Client().CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{
		ResourceVersion: latest(pods), FieldSelector: "spec.nodeName!=",
	})
	require.NoError(b, err)
	defer binds.Stop()
	url, stopExtender := s.start(b, c)
	name := schedulerPart(b, c, s, url)
	rate, err := awaitBinds(ctx, binds)
	require.NoError(b, err, s.name)
	require.NoError(b, c.StopPart(name))
	stopExtender()
	require.NoError(b, deletePods(ctx, c.Client(), pods))
	return rate
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

// schedulerPart starts the setup's kube-scheduler, the first time with its configuration. Nodes are
// sampled as is kube-scheduler's default: at 5,000 nodes it looks for 500 that are feasible.
func schedulerPart(b *testing.B, c *controlplane.ControlPlane, s setup, url string) string {
	b.Helper()
	name := "scheduler-" + s.name
	if _, err := c.Process(name); err == nil {
		require.NoError(b, c.StartPart(b.Context(), name))
		return name
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
	return name
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
