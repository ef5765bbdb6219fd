package four

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = corev1.NamespaceDefault
	nodes     = 20
	nodeCPUs  = 4
	rounds    = 5
	percent   = 120 // of what the nodes offer is asked for
	quiet     = 1500 * time.Millisecond
	roundTime = 90 * time.Second

	behindExtender = "default-scheduler"
	withPlugin     = "globalreserve-scheduler"
	onREST         = "group-scheduler"
	naive          = "naive-scheduler"
)

// The ledger is in a server, or in the globalreserve-scheduler itself.
func TestFourSchedulersAtOnce(t *testing.T) {
	for name, local := range map[string]bool{"the ledger in a server": false, "the ledger in the scheduler": true} {
		t.Run(name, func(t *testing.T) {
			c := start(t, local)
			for round := range rounds {
				c.round(round)
			}
			refused, tooLate := c.naive.Refused()
			t.Logf("the naive scheduler: %d bindings refused for want of room, %d too late", refused, tooLate)
			assert.Positive(t, refused, "admission had nothing to refuse: this was no race")
		})
	}
}

// cluster is a control plane with the four schedulers.
type cluster struct {
	*controlplane.ControlPlane
	t       *testing.T
	watcher *clusterload.Watcher
	url     string
	naive   *clusterload.NaiveScheduler
}

func start(t *testing.T, local bool) *cluster {
	ctx := t.Context()
	c := &cluster{ControlPlane: shared.StartT(t), t: t}
	names, err := c.CreateNodes(ctx, nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(nodeCPUs, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}})
	require.NoError(t, err)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	c.startLedger(local)

	config, err := clusterload.SchedulerConfig("default-scheduler.yaml", c.url)
	require.NoError(t, err)
	require.NoError(t, c.StartScheduler(ctx, behindExtender, config))
	_, err = clusterload.StartGroupScheduler(ctx, c.ControlPlane, clusterload.GroupSchedulerOptions{
		SchedulerName: onREST, ServerURL: c.url, Command: []string{testbed.Program(t, "groupscheduler")},
	})
	require.NoError(t, err)
	c.naive = &clusterload.NaiveScheduler{Client: c.Client(), Name: naive, Namespace: namespace, Nodes: names}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.naive.Run(running)
	}()
	t.Cleanup(func() { stop(); <-stopped })
	return c
}

// startLedger starts the ledger, the globalreserve-scheduler and the webhook.
func (c *cluster) startLedger(local bool) {
	t, ctx := c.t, c.t.Context()
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	options := clusterload.PluginSchedulerOptions{Name: withPlugin}
	if local {
		options.ServerArgs = webhook.PluginArgs
	} else {
		server, err := clusterload.StartServer(ctx, c.ControlPlane, clusterload.ServerOptions{Args: slices.Concat(clusterload.QuickStart, webhook.Args)})
		require.NoError(t, err)
		c.url, options.RemoteURL = server.URL, server.URL
	}
	scheduler, err := clusterload.StartPluginScheduler(ctx, c.ControlPlane, options)
	require.NoError(t, err)
	if local {
		c.url = scheduler.URL
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the scheduler's log:\n%s", testbed.Tail(scheduler.LogFile(), 30))
		}
	})
	require.NoError(t, webhook.Install(ctx, c.ControlPlane, nil))
}

// round gives all schedulers more pods than fit, and takes them away again.
func (c *cluster) round(round int) {
	t, ctx := c.t, c.t.Context()
	size := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: namespace, Capacity: nodes * nodeCPUs * 1000, Percent: percent, Sizes: []corev1.ResourceList{size("1"), size("500m")},
		Schedulers:     []string{behindExtender, withPlugin, naive},
		GroupScheduler: onREST, GroupSize: 4, GroupPercent: 20,
	})
	for _, pod := range pods {
		pod.Name = fmt.Sprintf("round-%d-%s", round, pod.Name)
	}
	require.NoError(t, clusterload.CreatePods(ctx, c.Client(), pods))
	limited, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	state, err := c.watcher.AwaitSettled(limited, quiet)
	require.NoError(t, err, "everything that fits is bound")
	assert.Empty(t, c.watcher.Violations(), "no node was overcommitted, on any event")
	assert.Zero(t, c.watcher.Gaps())
	bound := map[string]int{}
	for _, pod := range c.bound() {
		bound[pod.Spec.SchedulerName]++
	}
	whole, half := state.CountGroups()
	t.Logf("round %d: %d of %d pods bound, by %v; %d groups whole, %d half", round, state.Bound, len(pods), bound, whole, half)
	assert.Zero(t, half)
	for _, scheduler := range []string{behindExtender, withPlugin, onREST, naive} {
		assert.Positive(t, bound[scheduler], "%s took no part", scheduler)
	}
	require.NoError(t, clusterload.DeletePods(ctx, c.Client(), namespace))
	c.awaitNoClaims()
}
