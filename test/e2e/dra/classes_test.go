//go:build e2e

package dra

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestCountsOfMappedResources has pods ask by count for what a DeviceClass maps to devices, by the name that the class
// gives and by the class's own: nobody has named these to the server or a scheduler, and they are given devices.
func TestCountsOfMappedResources(t *testing.T) {
	const scheduler = "extended-resource-scheduler"
	c := newCluster(t, 2, 1)
	c.startWebhook()
	c.StartKubeScheduler(scheduler, "extended-resource-scheduler.yaml")
	asking := func(name, of string) *corev1.Pod {
		return testbed.NewPod(name, scheduler, "100m", func(pod *corev1.Pod) {
			one := resource.MustParse("1")
			resources := &pod.Spec.Containers[0].Resources
			resources.Requests[corev1.ResourceName(of)] = one
			resources.Limits = corev1.ResourceList{corev1.ResourceName(of): one}
		})
	}
	c.Create(asking("implicit", "deviceclass.resource.kubernetes.io/"+class))
	c.AwaitBound("implicit")
	c.Create(asking("explicit", "example.com/gpu"))
	c.AwaitRefused("explicit")
	c.mapClass("example.com/gpu")
	c.AwaitBound("explicit")
	c.Create(asking("third", "example.com/gpu"), asking("unmapped", "example.com/other"))
	c.AwaitRefused("third")
	c.AwaitRefused("unmapped")

	bound := testbed.Bound(c.Pods())
	require.Len(t, bound, 2, "as many as there are devices")
	assert.NotEqual(t, bound[0].Spec.NodeName, bound[1].Spec.NodeName)
	claims := c.allocated()
	require.Len(t, claims, 2)
	owners := []string{claims[0].OwnerReferences[0].Name, claims[1].OwnerReferences[0].Name}
	slices.Sort(owners)
	assert.Equal(t, []string{"explicit", "implicit"}, owners)
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))

	c.CreateReservation("ahead", `{ttl: 10m, slots: [{name: a, requests: {cpu: 1, example.com/later: 1}}]}`)
	c.AwaitReservation("ahead", v1alpha1.ReservationPending)
	c.mapClass("example.com/later")
	c.Eventually(func(t *assert.CollectT) {
		conditions := c.AwaitReservation("ahead", v1alpha1.ReservationPending).Status.Conditions
		assert.Contains(t, conditions[0].Message, "where DRA gives example.com/later, whose devices are kept for no pod")
	})
}

// mapClass has the class map an extended resource.
func (c *cluster) mapClass(resource string) {
	c.T.Helper()
	_, err := c.Client().ResourceV1().DeviceClasses().Patch(c.T.Context(), class, types.MergePatchType,
		[]byte(`{"spec":{"extendedResourceName":"`+resource+`"}}`), metav1.PatchOptions{})
	require.NoError(c.T, err)
}

const gpus corev1.ResourceName = "nvidia.com/gpu"

// TestClassIsForNodesWithItsDevices has a class map the resource that other nodes have by device plugin. Nothing of it
// is promised where DRA has no devices of the class: not while the plugin is away, in no gang, and for no Reservation.
func TestClassIsForNodesWithItsDevices(t *testing.T) {
	c := newCluster(t, 1, 2) // node-0 has two devices of DRA
	nodes := func(prefix, count string) string {
		allocatable := testbed.Requests("4")
		allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
		allocatable[gpus] = resource.MustParse(count)
		return c.AddNodes(1, controlplane.NodeTemplate{Prefix: prefix, Allocatable: allocatable})[0]
	}
	eight, two := nodes("eight", "8"), nodes("two", "2")
	cpus := c.AddNodes(1, controlplane.NodeTemplate{Prefix: "cpus"})[0]
	webhook := c.startWebhook()
	c.mapClass(string(gpus))
	asks := func(name, count string, changes ...func(*corev1.Pod)) *corev1.Pod {
		return c.CreatePod(name, testbed.Nobody, "100m", append(changes, func(pod *corev1.Pod) {
			limits := corev1.ResourceList{gpus: resource.MustParse(count)}
			pod.Spec.Containers[0].Resources.Limits = limits
			pod.Spec.Containers[0].Resources.Requests[gpus] = limits[gpus]
		})...)
	}
	probe := asks("probe", "2")
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, []string{cpus}, slices.Collect(maps.Keys(c.Filter(probe, "node-0", eight, two, cpus))))
	}, "the server knows that DRA has devices on node-0")

	require.Empty(t, c.Bind(asks("user", "8"), eight))
	for _, capacity := range []string{"8", "0"} { // the plugin is away, or the kubelet has just begun
		c.setGPUs(eight, capacity, "0")
		assert.Contains(t, c.Bind(asks("second-"+capacity, "4"), eight), "too little nvidia.com/gpu")
		answer := c.Reserve(&reserver.Request{
			SchedulerName: testbed.Nobody, Durable: ptr.To(true), TTLSeconds: 600, Nodes: []string{eight},
			Pods: []*corev1.Pod{asks("ahead-"+capacity, "8")},
		})
		assert.Contains(t, answer.Error, "too little nvidia.com/gpu")
	}
	c.setGPUs(eight, "8", "8")

	gang := func(name string) *corev1.Pod {
		return asks(name, "1", testbed.Annotated(v1alpha1.GangAnnotation, "ring", v1alpha1.GangMinAnnotation, "3"))
	}
	first := gang("ring-0")
	gang("ring-1")
	gang("ring-2")
	c.Eventually(func(t *assert.CollectT) {
		assert.Contains(t, c.Bind(first, two), "of its gang need capacity at once, and there is some for 1")
	}, "node-0 has devices, which are kept for nobody, and "+cpus+" has none")

	c.CreateReservation("ahead", `{ttl: 10m, slots: [{name: a, requests: {cpu: 1, nvidia.com/gpu: 2}}, `+
		`{name: b, requests: {cpu: 1, nvidia.com/gpu: 2}}]}`)
	c.AwaitReservation("ahead", v1alpha1.ReservationPending)
	require.NoError(t, c.Reservations().Delete(t.Context(), "ahead", metav1.DeleteOptions{}))
	require.Zero(t, c.Metric("globalreserve_overcommitted_nodes"))
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	c.boundOnceDRAHasGiven(probe)
}

// boundOnceDRAHasGiven has pods that nobody allocates devices for come to node-0: they are refused, and do not close it
// to the pods that DRA serves there.
func (c *cluster) boundOnceDRAHasGiven(pod *corev1.Pod) {
	t := c.T
	pods := c.Client().CoreV1().Pods(namespace)
	const why = "the status of a pod says what DRA gave it"
	placed := pod.DeepCopy()
	placed.ObjectMeta, placed.Spec.NodeName = metav1.ObjectMeta{Name: "placed", Namespace: namespace}, "node-0"
	_, err := pods.Create(t.Context(), placed, metav1.CreateOptions{})
	require.ErrorContains(t, err, why, "no scheduler allocates for it")
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-0"},
	}
	require.ErrorContains(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}), why, "by a scheduler without DRA")
	require.Contains(t, c.Bind(pod, "node-0"), why)

	given := pod.DeepCopy()
	given.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "probe-claim", RequestMappings: []corev1.ContainerExtendedResourceRequest{{
			ContainerName: pod.Spec.Containers[0].Name, ResourceName: string(gpus), RequestName: "container-0-request-0",
		}},
	}
	_, err = pods.UpdateStatus(t.Context(), given, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}), "its scheduler has written that")
}

// setGPUs has a node's status say what its kubelet does of GPUs, and returns when the server has seen that.
func (c *cluster) setGPUs(node, capacity, allocatable string) {
	c.T.Helper()
	object, err := c.Client().CoreV1().Nodes().Get(c.T.Context(), node, metav1.GetOptions{})
	require.NoError(c.T, err)
	object.Status.Capacity[gpus] = resource.MustParse(capacity)
	object.Status.Allocatable[gpus] = resource.MustParse(allocatable)
	cpu := object.Status.Allocatable[corev1.ResourceCPU]
	cpu.Add(resource.MustParse("1")) // by which the server's view is known
	object.Status.Allocatable[corev1.ResourceCPU] = cpu
	_, err = c.Client().CoreV1().Nodes().UpdateStatus(c.T.Context(), object, metav1.UpdateOptions{})
	require.NoError(c.T, err)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, cpu.MilliValue(), c.CPU(node).Allocatable) })
}
