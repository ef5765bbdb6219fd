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
	naive  = "naive-scheduler"
	plugin = "plugin-scheduler"
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
		{"admission", byAdmission},
		{"plugin", byPlugin},
		{"all at once", byAll},
	} {
		t.Run(way.name, func(t *testing.T) { way.test(c.in(t)) })
	}
	c.requireConsistent()
	c.verdict.requireGood(t)
	require.Zero(t, c.metric("globalreserve_bypassed_binds_total"))
}

// claimant creates a claim of a model and a pod of the same name that names it, which nobody schedules.
func (c *cluster) claimant(name, model string) *corev1.Pod {
	c.t.Helper()
	c.createClaim(name, model, 1)
	c.eventually(func(t *assert.CollectT) {
		claim, err := c.claims().Get(c.t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, claim.Status.Phase, "the server has not seen it yet")
	})
	return c.create(newPod(name, "nobody", name))
}

func byExtender(c *cluster) {
	c.createDevice("ext", "node-1", "ext")
	c.awaitDevice("ext", v1alpha1.ExtendedResourceAvailable)
	first, second := c.claimant("ext-first", "ext"), c.claimant("ext-second", "ext")
	const insufficient = "GlobalReserve: the free devices of the node do not meet the pod's claims"
	require.Equal(c.t, map[string]string{"node-0": insufficient}, c.filter(first, "node-0", "node-1"))
	require.Contains(c.t, c.bind(first, "node-0"), "node-0")
	require.Empty(c.t, given(c.pod("ext-first")))

	require.Empty(c.t, c.bind(first, "node-1"))
	require.Equal(c.t, "GPU-ext", given(c.pod("ext-first")), "written with the binding")
	require.Empty(c.t, c.bind(first, "node-1"), "a repeat is a success")
	require.Equal(c.t, map[string]string{"node-1": insufficient}, c.filter(second, "node-1"))
	require.Contains(c.t, c.bind(second, "node-1"), "ext-second", "the refusal names the claim")
	third := c.create(newPod("ext-third", "nobody", "ext-first"))
	require.Equal(c.t, map[string]string{"node-1": "GlobalReserve: another pod has a device claim of the pod"}, c.filter(third, "node-1"))
	require.NotEmpty(c.t, c.bind(third, "node-1"))

	c.deletePod("ext-first")
	c.awaitClaim("ext-first", v1alpha1.ExtendedResourceClaimPending)
	require.Empty(c.t, c.bind(third, "node-1"), "the claim serves the next pod")
}

// groupRequest is the body of /reserve and /unreserve.
type groupRequest struct {
	SchedulerName string
	Pods          []*corev1.Pod `json:",omitempty"`
	Nodes         []string      `json:",omitempty"`
	TTLSeconds    int64         `json:",omitempty"`
	Durable       *bool         `json:",omitempty"`
	Reservation   string        `json:",omitempty"`
}

func (c *cluster) reserve(request *groupRequest) (answer reserver.Answer) {
	c.t.Helper()
	request.SchedulerName, request.TTLSeconds = "group", 60
	require.NoError(c.t, c.server.Post(c.t.Context(), testbed.ReservePath, request, &answer))
	return answer
}

// byReserve takes a group's devices durably, over a restart of the server; the group's scheduler binds by
// itself, under admission.
func byReserve(c *cluster) {
	c.reserveGroup("durable", nil, func(pod *corev1.Pod, node string) {
		require.NoError(c.t, c.bindAsAnybody(c.t.Context(), pod.Name, node))
	})
}

// byReserveInMemory takes them without an object; the server binds.
func byReserveInMemory(c *cluster) {
	c.reserveGroup("memory", new(bool), func(pod *corev1.Pod, node string) {
		require.Empty(c.t, c.bind(pod, node))
	})
}

func (c *cluster) reserveGroup(model string, durable *bool, bind func(pod *corev1.Pod, node string)) {
	c.t.Helper()
	request := groupRequest{Durable: durable}
	for i := range 3 {
		name, node := fmt.Sprintf("%s-%d", model, i), fmt.Sprintf("node-%d", i)
		if i < 2 {
			c.createDevice(name, node, model)
			c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
		}
		request.Pods, request.Nodes = append(request.Pods, c.claimant(name, model)), append(request.Nodes, node)
	}
	answer := c.reserve(&request)
	require.NotEmpty(c.t, answer.FailedPods, "the third has no device")
	require.Equal(c.t, "InsufficientDevices", answer.Rejections[0].Reason)
	require.Equal(c.t, namespace+"/"+model+"-2", answer.Rejections[0].DeviceClaim)
	rival := c.claimant(model+"-rival", model)
	require.Empty(c.t, c.filter(rival, "node-0"), "nothing was taken for a part of the group")

	c.createDevice(model+"-2", "node-2", model)
	c.awaitDevice(model+"-2", v1alpha1.ExtendedResourceAvailable)
	answer = c.reserve(&request)
	require.Empty(c.t, answer.FailedPods, "%+v", answer)
	require.Equal(c.t, durable == nil, answer.Reservation != "")
	if durable == nil {
		c.server.Crash(c.t)
	}
	require.Len(c.t, c.filter(rival, request.Nodes...), 3, "the devices are kept for the group")
	require.NotEmpty(c.t, c.bind(rival, "node-0"))
	require.Error(c.t, c.bindAsAnybody(c.t.Context(), rival.Name, "node-1"))
	c.awaitDevice(model+"-0", v1alpha1.ExtendedResourceAvailable) // no pod has it yet
	for i, pod := range request.Pods {
		bind(pod, request.Nodes[i])
		require.Equal(c.t, "GPU-"+pod.Name, given(c.pod(pod.Name)))
		c.awaitDevice(pod.Name, v1alpha1.ExtendedResourceBound)
	}
}

// bindAsAnybody writes a binding as a scheduler does that has never heard of GlobalReserve.
func (c *cluster) bindAsAnybody(ctx context.Context, name, node string) error {
	return c.Client().CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

func byAdmission(c *cluster) {
	c.createDevice("adm", "node-1", "adm")
	c.awaitDevice("adm", v1alpha1.ExtendedResourceAvailable)
	c.claimant("adm-first", "adm")
	c.claimant("adm-second", "adm")
	err := c.bindAsAnybody(c.t.Context(), "adm-first", "node-0")
	require.True(c.t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(c.t, err, "adm-first")
	require.NoError(c.t, c.bindAsAnybody(c.t.Context(), "adm-first", "node-1"))
	require.Equal(c.t, "GPU-adm", given(c.pod("adm-first")), "the API server wrote what the webhook gave")
	require.Error(c.t, c.bindAsAnybody(c.t.Context(), "adm-second", "node-1"))
	c.awaitClaim("adm-first", v1alpha1.ExtendedResourceClaimBound)
	c.deletePod("adm-first")
	c.eventually(func(t *assert.CollectT) { assert.NoError(t, c.bindAsAnybody(c.t.Context(), "adm-second", "node-1")) })
	require.Equal(c.t, "GPU-adm", given(c.pod("adm-second")))
}

// byPlugin has a kube-scheduler place pods that keeps a mirror of the server's ledger.
func byPlugin(c *cluster) {
	_, err := clusterload.StartPluginScheduler(c.t.Context(), c.ControlPlane, clusterload.PluginSchedulerOptions{
		Name: plugin, RemoteURL: c.server.URL,
	})
	require.NoError(c.t, err)
	c.createDevice("plug", "node-3", "plug")
	c.createClaim("plug-first", "plug", 1)
	c.create(newPod("plug-first", plugin, "plug-first"))
	pod, _ := c.awaitBound("plug-first")
	require.Equal(c.t, "node-3", pod.Spec.NodeName)
	require.Equal(c.t, "GPU-plug", given(pod))
	c.createClaim("plug-second", "plug", 1)
	c.create(newPod("plug-second", plugin, "plug-second"))
	c.awaitRefused("plug-second")
	c.deletePod("plug-first")
	started := time.Now()
	pod, at := c.awaitBound("plug-second")
	require.Equal(c.t, "GPU-plug", given(pod))
	c.t.Logf("bound by the plugin %s after the device was free", at.Sub(started).Round(time.Millisecond))
}

// byAll has all of them race for the same devices.
func byAll(c *cluster) {
	c.startScheduler(scheduler)
	c.createRaceDevices()
	ctx, stop := context.WithCancel(c.t.Context())
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
		name := fmt.Sprintf("any-%d", i)
		c.createClaim(name, "K80", 1)
		pods = append(pods, newPod(name, []string{scheduler, naive, plugin, "groups"}[i%4], name))
	}
	require.NoError(c.t, clusterload.CreatePods(c.t.Context(), c.Client(), pods))
	c.eventually(func(t *assert.CollectT) { assert.Len(t, c.boundPods(), before+raceDevices) })
	controlplane.Never(c.t, func() bool { return len(c.boundPods()) != before+raceDevices }, never, 5*poll)
	by := map[string]int{}
	for _, pod := range c.boundPods() {
		by[pod.Spec.SchedulerName]++
	}
	refused, _ := blind.Refused()
	c.t.Logf("bound by scheduler: %v; admission refused %d bindings", by, refused)
	require.Positive(c.t, refused)
}

// scheduleGroups reserves for two pods of its name at a time, wherever, and has the server bind them.
func (c *cluster) scheduleGroups(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		pods, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=,spec.schedulerName=groups",
		})
		if err == nil && len(pods.Items) >= 2 {
			request := groupRequest{SchedulerName: "groups", TTLSeconds: 5}
			for i := range 2 {
				request.Pods = append(request.Pods, &pods.Items[(try+i)%len(pods.Items)])
				request.Nodes = append(request.Nodes, fmt.Sprintf("node-%d", (try+i)%raceNodes))
			}
			var answer reserver.Answer
			if c.server.Post(ctx, testbed.ReservePath, request, &answer) == nil && answer.Error == "" && len(answer.FailedPods) == 0 {
				for i, pod := range request.Pods {
					_, _ = c.server.TryBind(ctx, pod, request.Nodes[i]) // what fails is tried again
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
