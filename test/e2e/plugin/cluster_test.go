//go:build e2e

package plugin

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// scheduler is the name of the scheduler under test.
const scheduler = "globalreserve-scheduler"

// shared is the control plane of all tests but those of gangs, with our definitions, and withGangs theirs.
var (
	shared    = controlplane.Shared{Prepare: crd.Prepare}
	withGangs = controlplane.Shared{
		Options: controlplane.Options{
			FeatureGates:  map[string]bool{"GenericWorkload": true},
			APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"},
		},
		Prepare: crd.Prepare,
	}
)

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared, &withGangs)) }

// cluster is a control plane with a globalreserve-scheduler, or a server and schedulers behind it.
type cluster struct {
	testbed.Cluster
	scheduler *clusterload.PluginScheduler
	nodes     []string
}

// serverArgs are the settings of the server in the scheduler: what was killed is replaced soon.
var serverArgs = map[string]any{
	"bindTimeout": "2s", "peerAddress": "127.0.0.1:0", "leaseDuration": "4s", "leaseRenewDeadline": "3s",
	"leaseRetryPeriod": "1s",
}

// setup says what a cluster is like.
type setup struct {
	nodes     int
	cpu       string // of a node
	scheduler clusterload.PluginSchedulerOptions
	// plane is the control plane; nil is that of most tests.
	plane *controlplane.Shared
}

func newCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	if s.plane == nil {
		s.plane = &shared
	}
	c := &cluster{Cluster: testbed.NewCluster(t, s.plane.StartT(t))}
	c.nodes = c.AddNodes(s.nodes, nodeOf(s.cpu))
	o := s.scheduler
	o.Name, o.ServerArgs = scheduler, maps.Clone(serverArgs)
	maps.Copy(o.ServerArgs, s.scheduler.ServerArgs)
	var err error
	c.scheduler, err = clusterload.StartPluginScheduler(t.Context(), c.ControlPlane, o)
	require.NoError(t, err)
	c.Ledger.URL = c.scheduler.URL
	return c
}

func nodeOf(cpu string) controlplane.NodeTemplate {
	return controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}}
}

// create creates a pod for the scheduler under test.
func (c *cluster) create(name, cpu string, changes ...func(*corev1.Pod)) {
	c.T.Helper()
	c.CreatePod(name, scheduler, cpu, changes...)
}

// bound waits until a pod is bound and returns its node.
func (c *cluster) bound(name string) string {
	c.T.Helper()
	pod, _ := c.AwaitBound(name)
	return pod.Spec.NodeName
}

// reserve has somebody else reserve CPU on a node, for a pod that does not exist.
func (c *cluster) reserve(name, cpu, node string, ttl time.Duration) *reserver.Request {
	c.T.Helper()
	r := &reserver.Request{
		SchedulerName: "somebody-else", Pods: []*corev1.Pod{testbed.NewPod(name, scheduler, cpu)}, Nodes: []string{node},
		TTLSeconds: int64(ttl / time.Second), Durable: ptr.To(false),
	}
	require.Empty(c.T, c.Reserve(r).Error)
	return r
}

func (c *cluster) unreserve(r *reserver.Request) {
	c.T.Helper()
	require.Empty(c.T, c.Unreserve(&reserver.Request{SchedulerName: r.SchedulerName, Pods: r.Pods}).Error)
}

// claims lists the pods that have capacity and are not bound, as namespace/name@node.
func (c *cluster) claims() []string {
	c.T.Helper()
	claims := []string{}
	for _, allocation := range c.Allocations().Allocations {
		if allocation.State != "Bound" {
			claims = append(claims, fmt.Sprintf("%s/%s@%s", allocation.Namespace, allocation.Pod, allocation.Node))
		}
	}
	answer, err := c.Ledger.Reservations(c.T.Context())
	require.NoError(c.T, err)
	for _, r := range answer.Reservations {
		if !r.Durable {
			claims = append(claims, fmt.Sprintf("%s/%s@%s", r.Namespace, r.Slots[0].Pod, r.Slots[0].Node))
		}
	}
	return claims
}

// awaitClaims waits until so many pods have capacity that they are not bound to.
func (c *cluster) awaitClaims(n int, what ...any) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.claims(), n) }, what...)
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.T = t
	return &inner
}
