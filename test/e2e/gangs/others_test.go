//go:build e2e || chaos

package gangs

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// others is a gang scheduler that is not ours, and how gangs are made for it.
type others struct {
	scheduler string // the schedulerName of its pods
	start     func(ctx context.Context, cp *controlplane.ControlPlane, name string) (*controlplane.Process, error)
	// group makes the object of a gang. It is nil where gangs have none.
	group func(namespace, name string, minMember int) *unstructured.Unstructured
	mark  func(pod *corev1.Pod, name string, size int)
	// sessions tells that it places pods now and then, so that kube-scheduler would have placed all of its own before.
	sessions bool
}

var (
	coscheduling = others{
		scheduler: "coscheduler", start: clusterload.StartCoscheduler,
		group: clusterload.PodGroup, mark: clusterload.MarkPodGroup,
	}
	volcano = others{
		scheduler: "volcano", start: clusterload.StartVolcano,
		group: clusterload.VolcanoPodGroup, mark: clusterload.MarkVolcanoPodGroup, sessions: true,
	}
	yuniKorn = others{
		scheduler: clusterload.YuniKorn, mark: clusterload.MarkYuniKornGang, sessions: true,
		start: func(ctx context.Context, cp *controlplane.ControlPlane, _ string) (*controlplane.Process, error) {
			return clusterload.StartYuniKorn(ctx, cp)
		},
	}
)

// newVolcanoCluster is newCluster for the gangs of Volcano, whose definitions are in a control plane of its own.
func newVolcanoCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	require.NoError(t, clusterload.DefineVolcano(t.Context(), cp))
	return newClusterOn(t, cp, volcano, nodes, deadline)
}

// newYuniKornCluster is newCluster for the gangs of YuniKorn.
func newYuniKornCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	c := newCluster(t, nodes, deadline)
	c.others = yuniKorn
	return c
}

// createStopped stops the schedulers, and creates pods of gangs among others.
func (c *cluster) createStopped(prefix string, gangs int, alone []*corev1.Pod) {
	c.T.Helper()
	pods := slices.Clone(alone)
	for i := range gangs {
		name := fmt.Sprintf("%s-gang-%d", prefix, i)
		if c.others.group != nil {
			c.createPodGroup(name, gangSize)
		}
		pods = slices.Insert(pods, (i*9)%len(pods), c.gangPods(name)...)
	}
	for _, s := range c.schedulers {
		require.NoError(c.T, s.Signal(syscall.SIGSTOP))
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
}

// letGo lets the schedulers go at once, or kube-scheduler when the gang scheduler has bound a pod.
func (c *cluster) letGo() {
	c.T.Helper()
	for i, s := range c.schedulers {
		if i > 0 && c.others.sessions {
			c.awaitProgress(1, func() int { return c.Watcher.Snapshot().Bound }, "pods of gangs that are bound")
		}
		require.NoError(c.T, s.Signal(syscall.SIGCONT))
	}
}

// fillTogether has a gang scheduler and kube-scheduler bind pods until all capacity is used. Each has pods for all of
// it.
func (c *cluster) fillTogether() {
	c.T.Helper()
	c.startGangScheduler()
	c.startKubeScheduler()
	cpus := len(c.nodes) * nodeCPUs
	c.createStopped("together", cpus/gangSize, testbed.NewPods(cpus, "alone", singles, "1"))
	c.letGo()
	c.awaitFull()
}
