//go:build chaos

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const faultNodes = 40

// underLoad has two kube-schedulers bind pods all the time while faults happen, each after another
// part of the pods is bound. There are more pods than fit: full nodes are where a promise made twice
// shows. In the end everything has to be as if nothing had happened.
func (c *cluster) underLoad(faults ...func()) {
	c.T.Helper()
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: testbed.Namespace, Capacity: faultNodes * nodeCPU, Percent: 110,
		Sizes:      sizes("250m", "150m", "200m", "300m"),
		Schedulers: []string{"default-scheduler", "second-scheduler"},
	})
	fitting := len(pods) * 100 / 110
	ctx, cancel := context.WithCancel(c.T.Context())
	defer cancel()
	var creator errgroup.Group
	creator.Go(func() error { return c.createThroughFaults(ctx, pods) })
	for i, fault := range faults {
		c.awaitBoundCount(fitting * (i + 1) / (len(faults) + 2))
		began := time.Now()
		fault()
		c.T.Logf("fault %d took %s, %d pods are bound", i+1, time.Since(began).Round(time.Millisecond),
			c.Watcher.Snapshot().Bound)
	}
	require.NoError(c.T, creator.Wait())
	snapshot := c.awaitSettled()
	c.T.Logf("%d of %d pods bound, %d wait, %d gaps in the watch", snapshot.Bound, snapshot.Pods, snapshot.Pending,
		c.Watcher.Gaps())
	require.NotZero(c.T, snapshot.Pending, "everything fitted: no node was full")
	// A gap in the watch hides no overcommit here: no pod ever leaves its node, so it would last.
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}

// createThroughFaults creates pods from an API server that is away at times.
func (c *cluster) createThroughFaults(ctx context.Context, pods []*corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(testbed.Writers)
	for _, pod := range pods {
		group.Go(func() error {
			var last error
			err := wait.PollUntilContextTimeout(ctx, testbed.Poll, testbed.Soon, true, func(ctx context.Context) (bool, error) {
				_, last = c.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
				return last == nil || apierrors.IsAlreadyExists(last), nil
			})
			if err != nil {
				return fmt.Errorf("create pod %s: %w", pod.Name, last)
			}
			return nil
		})
	}
	return group.Wait()
}

// awaitBoundCount waits until so many pods are bound.
func (c *cluster) awaitBoundCount(n int) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.GreaterOrEqual(t, c.Watcher.Snapshot().Bound, n)
	})
}

// TestControlPlaneFaults takes the API server away while pods are being bound, and freezes etcd, so that
// the API server answers late or with errors of its own.
func TestControlPlaneFaults(t *testing.T) {
	c := newOwnCluster(t, faultNodes)
	c.startServer(clusterload.ServerOptions{})
	apiServer, err := c.Process(controlplane.APIServer)
	require.NoError(t, err)
	etcd, err := c.Process(controlplane.Etcd)
	require.NoError(t, err)
	c.underLoad(
		func() { require.NoError(t, c.RestartPart(t.Context(), controlplane.APIServer)) },
		func() {
			require.NoError(t, c.Kill(controlplane.APIServer))
			require.NoError(t, c.StartPart(t.Context(), controlplane.APIServer))
		},
		// It hangs: connections stay open, and nothing is answered.
		func() { c.frozen(apiServer, 4*time.Second, func() {}) },
		func() { c.frozen(etcd, 6*time.Second, func() {}) },
		func() { // the binds that the server dies over are still on their way when it comes back
			var start errgroup.Group
			c.frozen(etcd, 2*time.Second, func() {
				require.NoError(t, c.Server.Kill())
				start.Go(func() error {
					if err := clusterload.FreeLease(t.Context(), c.ControlPlane); err != nil { // which waits for etcd
						return err
					}
					return c.Server.Start(t.Context())
				})
			})
			require.NoError(t, start.Wait())
		},
	)
}

// frozen suspends a process for a while, and does something at the beginning of it.
func (c *cluster) frozen(process *controlplane.Process, d time.Duration, do func()) {
	c.T.Helper()
	require.NoError(c.T, process.Signal(syscall.SIGSTOP))
	do()
	<-time.After(d)
	require.NoError(c.T, process.Signal(syscall.SIGCONT))
}
