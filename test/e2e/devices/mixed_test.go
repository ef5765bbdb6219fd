//go:build e2e

package devices

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	mixedPods = 48
	// mixedGPUs is how many GPUs a node offers by count, and has as devices.
	mixedGPUs = raceDevices / raceNodes
)

// TestMixedRace has two kube-schedulers and somebody who reserves for gangs fill the same devices with pods that ask by
// count and pods that claim: never more than there are, and every device with one pod, at every event.
func TestMixedRace(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes, gpus: mixedGPUs})
	c.createRaceDevices()
	schedulers := []string{"first-scheduler", "second-scheduler", "groups"}
	for _, s := range schedulers[:2] {
		c.startScheduler(s)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { c.scheduleGroups(ctx) })

	c.createMixedPods(schedulers)
	c.awaitFull()
	c.Server.Crash(t)
	freed := 0
	for i, pod := range c.boundPods() {
		if i%2 == 0 {
			c.Delete(pod.Name)
			freed++
		}
	}
	c.awaitFull()
	c.requireConsistent()
	bound, by := c.boundPods(), map[string]int{}
	for i := range bound {
		kind := " by count"
		if gpusByCount(&bound[i]) == 0 {
			kind = " by claim"
		}
		by[bound[i].Spec.SchedulerName+kind]++
	}
	t.Logf("%d pods were deleted while all devices were in use; bound at the end: %v", freed, by)
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
}

// createMixedPods creates pods for the schedulers in turn: by count of one, and some of two, and with a claim.
func (c *cluster) createMixedPods(schedulers []string) {
	c.T.Helper()
	var group errgroup.Group
	group.SetLimit(testbed.Writers)
	pods := make([]*corev1.Pod, mixedPods)
	for i := range pods {
		name, by := fmt.Sprintf("mixed-%d", i), schedulers[i%len(schedulers)]
		if i/len(schedulers)%2 == 0 {
			pods[i] = newPod(name, by, "")
			count := resource.NewQuantity(1+int64(i/6%4/3), resource.DecimalSI)
			resources := &pods[i].Spec.Containers[0].Resources
			resources.Requests[testbed.GPU] = *count
			resources.Limits = corev1.ResourceList{testbed.GPU: *count}
			continue
		}
		pods[i] = newPod(name, by, name)
		group.Go(func() error {
			_, err := c.DeviceClaims().Create(c.T.Context(), testbed.NewDeviceClaim(name, "K80", 1), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(c.T, group.Wait())
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
}

// awaitFull waits until every device has a pod, which knows of it, and no node has more than it has devices.
func (c *cluster) awaitFull() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		used := int64(0)
		for _, pod := range c.boundPods() {
			used += gpusOf(&pod)
		}
		assert.GreaterOrEqual(t, used, int64(raceDevices))
	})
	c.verdict.requireGood(c.T)
	told := map[string]bool{}
	for _, pod := range c.boundPods() {
		for _, id := range idsOf(&pod) {
			told[pod.Spec.NodeName+" "+id] = true
		}
	}
	require.Len(c.T, told, raceDevices, "each device has a pod that was told of it")
}
