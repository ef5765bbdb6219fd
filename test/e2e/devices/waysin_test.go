//go:build e2e

package devices

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	naive = "naive-scheduler"

	// What is raced for. There are more claims than devices, and more pods than claims.
	raceNodes   = 5
	raceDevices = 20
	raceClaims  = 30
	racePods    = 40
)

// TestWaysIn takes devices by each of the ways into the ledger, and then by all of them at once.
func TestWaysIn(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes, admission: true})
	for _, way := range []struct {
		name string
		test func(*cluster)
	}{
		{"extender", byExtender},
		{"reserve", byReserve},
		{"reserve in memory", byReserveInMemory},
		{"reservation", byReservation},
		{"admission", byAdmission},
		{"all at once", byAll},
	} {
		t.Run(way.name, func(t *testing.T) { way.test(c.in(t)) })
	}
	c.requireConsistent()
	c.verdict.requireGood(t)
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
	require.Zero(t, c.Metric("globalreserve_decisions_total", "result", "skipped", "verb", "admission"),
		"the webhook is not asked about bindings of the server's own")
}

// claimant creates a claim of a model and a pod of the same name that names it, which nobody schedules.
func (c *cluster) claimant(name, model string) *corev1.Pod {
	c.T.Helper()
	c.CreateDeviceClaim(name, model, 1)
	c.awaitSeen(name)
	return c.create(name, testbed.Nobody, name)
}

func byExtender(c *cluster) {
	c.CreateDevice("ext", "node-1", "ext")
	c.awaitDevice("ext", v1alpha1.ExtendedResourceAvailable)
	first, second := c.claimant("ext-first", "ext"), c.claimant("ext-second", "ext")
	const insufficient = "GlobalReserve: the free devices of the node do not meet the pod's claims"
	require.Equal(c.T, map[string]string{"node-0": insufficient}, c.Filter(first, "node-0", "node-1"))
	require.Contains(c.T, c.Bind(first, "node-0"), "node-0")
	require.Empty(c.T, given(c.Pod("ext-first")))

	require.Empty(c.T, c.Bind(first, "node-1"))
	require.Equal(c.T, "GPU-ext", given(c.Pod("ext-first")), "written with the binding")
	require.Empty(c.T, c.Bind(first, "node-1"), "a repeat is a success")
	require.Equal(c.T, map[string]string{"node-1": insufficient}, c.Filter(second, "node-1"))
	require.Contains(c.T, c.Bind(second, "node-1"), "ext-second", "the refusal names the claim")
	third := c.create("ext-third", testbed.Nobody, "ext-first")
	require.Equal(c.T, map[string]string{"node-1": "GlobalReserve: another pod has a device claim of the pod"},
		c.Filter(third, "node-1"))
	require.NotEmpty(c.T, c.Bind(third, "node-1"))

	c.Delete("ext-first")
	c.awaitClaim("ext-first", v1alpha1.ExtendedResourceClaimPending)
	require.Empty(c.T, c.Bind(third, "node-1"), "the claim serves the next pod")
}

// byReserve takes a gang's devices durably, over a restart of the server; the gang's scheduler binds by
// itself, under admission.
func byReserve(c *cluster) {
	c.reserveGroup("durable", nil, func(pod *corev1.Pod, node string) {
		require.NoError(c.T, c.BindDirectly(pod.Name, node))
	})
}

// byReserveInMemory takes them without an object; the server binds.
func byReserveInMemory(c *cluster) {
	c.reserveGroup("memory", new(bool), func(pod *corev1.Pod, node string) {
		require.Empty(c.T, c.Bind(pod, node))
	})
}

func (c *cluster) reserveGroup(model string, durable *bool, bind func(pod *corev1.Pod, node string)) {
	c.T.Helper()
	request := &reserver.Request{SchedulerName: "group", TTLSeconds: 60, Durable: durable}
	for i := range 3 {
		name, node := fmt.Sprintf("%s-%d", model, i), fmt.Sprintf("node-%d", i)
		if i < 2 {
			c.CreateDevice(name, node, model)
			c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
		}
		request.Pods, request.Nodes = append(request.Pods, c.claimant(name, model)), append(request.Nodes, node)
	}
	answer := c.Reserve(request)
	require.NotEmpty(c.T, answer.FailedPods, "the third has no device")
	require.Equal(c.T, "InsufficientDevices", answer.Rejections[0].Reason)
	require.Equal(c.T, namespace+"/"+model+"-2", answer.Rejections[0].DeviceClaim)
	rival := c.claimant(model+"-rival", model)
	require.Empty(c.T, c.Filter(rival, "node-0"), "nothing was taken for a part of the gang")

	c.CreateDevice(model+"-2", "node-2", model)
	c.awaitDevice(model+"-2", v1alpha1.ExtendedResourceAvailable)
	answer = c.Reserve(request)
	require.Empty(c.T, answer.FailedPods, "%+v", answer)
	require.Equal(c.T, durable == nil, answer.Reservation != "")
	if durable == nil {
		c.Server.Crash(c.T)
	}
	require.Len(c.T, c.Filter(rival, request.Nodes...), 3, "the devices are kept for the gang")
	require.NotEmpty(c.T, c.Bind(rival, "node-0"))
	require.Error(c.T, c.BindDirectly(rival.Name, "node-1"))
	c.awaitDevice(model+"-0", v1alpha1.ExtendedResourceAvailable) // no pod has it yet
	for i, pod := range request.Pods {
		bind(pod, request.Nodes[i])
		require.Equal(c.T, "GPU-"+pod.Name, given(c.Pod(pod.Name)))
		c.awaitDevice(pod.Name, v1alpha1.ExtendedResourceBound)
	}
}

// byReservation has a slot of a Reservation keep a device for pods that are to come, over a restart of the server.
func byReservation(c *cluster) {
	c.CreateDevice("slot", "node-1", "slot")
	c.CreateReservation("slot", `{ttl: 0s, consumers: {index: slot}, slots: [{name: a, nodeName: node-1,
		requests: {cpu: 100m}, devices: [{resourceName: nvidia.com/gpu, matchProperties: {model: slot}}]}]}`)
	c.AwaitReservation("slot", v1alpha1.ReservationAvailable)
	c.Server.Crash(c.T)
	require.NotEmpty(c.T, c.Bind(c.claimant("slot-other", "slot"), "node-1"))
	c.CreateDeviceClaim("slot-consumer", "slot", 1)
	c.awaitSeen("slot-consumer")
	consumer := c.create("slot-consumer", testbed.Nobody, "slot-consumer", v1alpha1.ReservationIndexAnnotation, "slot")
	require.Empty(c.T, c.Bind(consumer, "node-1"))
	consumer = c.Pod(consumer.Name)
	require.Equal(c.T, "GPU-slot", given(consumer))
	require.Equal(c.T, namespace+"/slot/a", consumer.Annotations[v1alpha1.MatchedReservationAnnotation])
	c.AwaitReservation("slot", v1alpha1.ReservationSucceeded)
}

func byAdmission(c *cluster) {
	c.CreateDevice("adm", "node-1", "adm")
	c.awaitDevice("adm", v1alpha1.ExtendedResourceAvailable)
	c.claimant("adm-first", "adm")
	c.claimant("adm-second", "adm")
	err := c.BindDirectly("adm-first", "node-0")
	require.True(c.T, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(c.T, err, "adm-first")
	require.NoError(c.T, c.BindDirectly("adm-first", "node-1"))
	require.Equal(c.T, "GPU-adm", given(c.Pod("adm-first")), "the API server wrote what the webhook gave")
	require.Error(c.T, c.BindDirectly("adm-second", "node-1"))
	c.awaitClaim("adm-first", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("adm-first")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("adm-second", "node-1")) })
	require.Equal(c.T, "GPU-adm", given(c.Pod("adm-second")))
}

// byAll has all of them race for the same devices, and for claims that serve one pod at a time.
func byAll(c *cluster) {
	c.startScheduler(scheduler)
	c.createRaceDevices()
	for i := range raceClaims {
		c.CreateDeviceClaim(fmt.Sprintf("claim-%d", i), "K80", 1)
	}
	ctx, stop := context.WithCancel(c.T.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	blind := &clusterload.NaiveScheduler{Client: c.Client(), Name: naive, Namespace: namespace}
	for i := range raceNodes {
		blind.Nodes = append(blind.Nodes, fmt.Sprintf("node-%d", i))
	}
	running.Go(func() { blind.Run(ctx) })
	running.Go(func() { c.scheduleGroups(ctx) })
	before := len(c.boundPods())
	var pods []*corev1.Pod
	for i := range racePods {
		claim := fmt.Sprintf("claim-%d", i%raceClaims)
		pods = append(pods, newPod(fmt.Sprintf("any-%d", i), []string{scheduler, naive, "groups"}[i%3], claim))
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.boundPods(), before+raceDevices) })
	c.CreateDeviceClaim("late", "K80", 1) // all of the naive scheduler's other pods may have been first
	c.create("late", naive, "late")
	c.Eventually(func(t *assert.CollectT) {
		refused, _ := blind.Refused()
		assert.Positive(t, refused)
	})
	controlplane.Never(c.T, func() bool { return len(c.boundPods()) != before+raceDevices }, testbed.Never, 5*testbed.Poll)
	by := map[string]int{}
	for _, pod := range c.boundPods() {
		by[pod.Spec.SchedulerName]++
	}
	refused, _ := blind.Refused()
	c.T.Logf("bound by scheduler: %v; admission refused %d bindings", by, refused)
}

// createRaceDevices creates the devices that are raced for.
func (c *cluster) createRaceDevices() {
	c.T.Helper()
	for i := range raceDevices {
		c.CreateDevice(fmt.Sprintf("gpu-%d", i), fmt.Sprintf("node-%d", i%raceNodes), "K80")
	}
}

// scheduleGroups reserves for two pods of its name at a time, wherever, and has the server bind them.
func (c *cluster) scheduleGroups(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		pods, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=,spec.schedulerName=groups",
		})
		if err == nil && len(pods.Items) >= 2 {
			request := &reserver.Request{SchedulerName: "groups", TTLSeconds: 5}
			for i := range 2 {
				request.Pods = append(request.Pods, &pods.Items[(try+i)%len(pods.Items)])
				request.Nodes = append(request.Nodes, fmt.Sprintf("node-%d", (try+i)%raceNodes))
			}
			var answer reserver.Answer
			if c.Ledger.Post(ctx, testbed.ReservePath, request, &answer) == nil && answer.Granted() {
				for i, pod := range request.Pods {
					_, _ = c.Ledger.TryBind(ctx, pod, request.Nodes[i]) // what fails is tried again
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
