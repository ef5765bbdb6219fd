package devices

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	raceNodes   = 5
	raceDevices = 20
	racePods    = 40
	raceRounds  = 2
)

// createRaceDevices creates the devices that are raced for.
func (c *cluster) createRaceDevices() {
	c.T.Helper()
	for i := range raceDevices {
		c.CreateDevice(fmt.Sprintf("gpu-%d", i), fmt.Sprintf("node-%d", i%raceNodes), "K80")
	}
}

// createRacePods creates pods with a claim each, for the schedulers in turn, while these stand still.
func (c *cluster) createRacePods(prefix string, schedulers ...string) (names []string) {
	c.T.Helper()
	var group errgroup.Group
	group.SetLimit(testbed.Writers)
	pods := make([]*corev1.Pod, racePods)
	for i := range pods {
		name := fmt.Sprintf("%s-%d", prefix, i)
		names = append(names, name)
		pods[i] = newPod(name, schedulers[i%len(schedulers)], name)
		group.Go(func() error {
			_, err := c.DeviceClaims().Create(c.T.Context(), testbed.NewDeviceClaim(name, "K80", 1), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(c.T, group.Wait())
	for _, s := range schedulers {
		c.signal(s, syscall.SIGSTOP)
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	for _, s := range schedulers {
		c.signal(s, syscall.SIGCONT)
	}
	return names
}

func (c *cluster) signal(part string, signal syscall.Signal) {
	c.T.Helper()
	process, err := c.Process(part)
	require.NoError(c.T, err)
	require.NoError(c.T, process.Signal(signal))
}

// TestRace lets two kube-schedulers bind 40 pods, each with a claim of its own, to 20 devices.
func TestRace(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes})
	c.createRaceDevices()
	schedulers := []string{"first-scheduler", "second-scheduler"}
	for _, s := range schedulers {
		c.startScheduler(s)
	}
	c.raceForClaims(schedulers)
	for round := range raceRounds {
		started := time.Now()
		names := c.createRacePods(fmt.Sprintf("round-%d", round), schedulers...)
		c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.boundPods(), raceDevices) })
		t.Logf("round %d: %d pods bound %s after the first was created", round+1, raceDevices, time.Since(started).Round(time.Millisecond))
		c.awaitAllTold(names)
		bound := c.boundPods()
		require.Len(t, bound, raceDevices, "no more than there are devices")
		require.Len(t, c.verdict.boundTo(t), raceDevices, "each has one, and no two the same")
		byScheduler := map[string]int{}
		for i := range bound {
			byScheduler[bound[i].Spec.SchedulerName]++
		}
		t.Logf("round %d: by scheduler %v", round+1, byScheduler)
		c.requireConsistent()
		c.verdict.requireGood(t)

		require.NoError(t, clusterload.DeletePods(t.Context(), c.Client(), namespace))
		c.deleteClaims()
	}
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
}

// raceForClaims has the schedulers bind 40 pods that share ten claims: a claim serves one pod at a time.
func (c *cluster) raceForClaims(schedulers []string) {
	c.T.Helper()
	const claims = 10
	var pods []*corev1.Pod
	var names []string
	for i := range claims {
		c.CreateDeviceClaim(fmt.Sprintf("shared-%d", i), "K80", 1)
	}
	for i := range racePods {
		names = append(names, fmt.Sprintf("sharer-%d", i))
		pods = append(pods, newPod(names[i], schedulers[i%len(schedulers)], fmt.Sprintf("shared-%d", i/2%claims)))
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.boundPods(), claims) })
	c.awaitAllTold(names)
	require.Len(c.T, c.boundPods(), claims)
	c.requireConsistent()
	c.verdict.requireGood(c.T)
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), namespace))
	c.deleteClaims()
}

// awaitAllTold waits until every pod of a race is bound or was refused.
func (c *cluster) awaitAllTold(names []string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		pods := c.Pods()
		assert.Len(t, pods, len(names))
		for i := range pods {
			told := slices.ContainsFunc(pods[i].Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodScheduled
			})
			assert.True(t, told || pods[i].Spec.NodeName != "", pods[i].Name)
		}
	})
}

// TestVerdictCanBeBad lets two schedulers give out devices that are all free in their own copies of the
// cluster, as schedulers do without GlobalReserve.
func TestVerdictCanBeBad(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes, alone: true})
	var group errgroup.Group
	for _, s := range []string{"first", "second"} {
		group.Go(func() error { return c.scheduleAlone(t.Context(), s) })
	}
	require.NoError(t, group.Wait())
	require.Len(t, c.verdict.seen(t), raceDevices, "each device was given out twice: else the verdict shows nothing")
}

// scheduleAlone binds a pod to each device, whoever has it.
func (c *cluster) scheduleAlone(ctx context.Context, name string) error {
	for i := range raceDevices {
		pod := newPod(fmt.Sprintf("%s-%d", name, i), "alone", "")
		if _, err := c.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := c.Client().CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: pod.Name, Annotations: testbed.Pairs(v1alpha1.ExtendedResourcesAnnotation, fmt.Sprintf("GPU-gpu-%d", i)),
			},
			Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%d", i%raceNodes)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}
