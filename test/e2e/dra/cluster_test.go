//go:build e2e || soak

package dra

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcetyped "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = testbed.Namespace
	driver    = "gpu.example.com"
	class     = "gpu"
)

// What is raced for: so many nodes, and devices of each.
const (
	raceNodes, raceDevices = 10, 4
	racePods               = 60
	raceTotal              = raceNodes * raceDevices
)

var rounds = flag.Int("rounds", 3, "how often devices are raced for, with the webhook")

// shared is the control plane of all tests that do not break it, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane with devices.
type cluster struct {
	testbed.Cluster
	verdict *verdict
}

// newCluster has so many nodes with so many devices each.
func newCluster(t *testing.T, nodes, devices int) *cluster {
	t.Helper()
	c := clusterOn(t, shared.StartT(t))
	for _, node := range c.AddNodes(nodes, controlplane.NodeTemplate{}) {
		_, err := c.Client().ResourceV1().ResourceSlices().Create(t.Context(), newSlice(node, devices),
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return c
}

// clusterOn has the class of the devices.
func clusterOn(t *testing.T, cp *controlplane.ControlPlane) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, cp), verdict: newVerdict(t, cp.Client())}
	_, err := cp.Client().ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// newSlice is the devices of a node, as its driver publishes them.
func newSlice(node string, devices int) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: ptr.To(node),
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	return slice
}

// newClaim asks for a device of the class.
func newClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: class,
				AllocationMode:  resourcev1.DeviceAllocationModeExactCount, Count: 1,
			},
		}}}},
	}
}

// newPod is a pod with a claim.
func newPod(name, scheduler, claim string) *corev1.Pod {
	return testbed.NewPod(name, scheduler, "100m", func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim)}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
}

// each does something side by side.
func (c *cluster) each(n int, do func(ctx context.Context, i int) error) {
	c.T.Helper()
	group, ctx := errgroup.WithContext(c.T.Context())
	group.SetLimit(testbed.Writers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	require.NoError(c.T, group.Wait())
}

// createClaims creates claims of one device each.
func (c *cluster) createClaims(names ...string) {
	c.T.Helper()
	c.each(len(names), func(ctx context.Context, i int) error {
		_, err := c.claimClient().Create(ctx, newClaim(names[i]), metav1.CreateOptions{})
		return err
	})
}

func (c *cluster) claimClient() resourcetyped.ResourceClaimInterface {
	return c.Client().ResourceV1().ResourceClaims(namespace)
}

func (c *cluster) claims() []resourcev1.ResourceClaim {
	c.T.Helper()
	list, err := c.claimClient().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(c.T, err)
	return list.Items
}

// allocated are those of the claims that have devices.
func (c *cluster) allocated() []resourcev1.ResourceClaim {
	return slices.DeleteFunc(c.claims(),
		func(claim resourcev1.ResourceClaim) bool { return claim.Status.Allocation == nil })
}

// release takes a claim away, as kube-controller-manager does when its pods are gone.
func (c *cluster) release(ctx context.Context, name string) error {
	claims := c.claimClient()
	for _, step := range []struct {
		patch        string
		subresources []string
	}{
		{`{"status":{"reservedFor":null,"allocation":null}}`, []string{"status"}},
		{`{"metadata":{"finalizers":null}}`, nil},
	} {
		_, err := claims.Patch(ctx, name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{},
			step.subresources...)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := claims.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clear takes all pods and claims away, and returns when the verdict has seen that.
func (c *cluster) clear() {
	c.T.Helper()
	require.NoError(c.T, c.Client().CoreV1().Pods(namespace).DeleteCollection(c.T.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}))
	claims := c.claims()
	c.each(len(claims), func(ctx context.Context, i int) error { return c.release(ctx, claims[i].Name) })
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Pods())
		assert.Empty(t, c.claims())
	})
	c.verdict.catchUp(c.T.(*testing.T), c.Client())
}

func (c *cluster) signal(signal syscall.Signal, parts ...string) {
	c.T.Helper()
	for _, part := range parts {
		process, err := c.Process(part)
		require.NoError(c.T, err)
		require.NoError(c.T, process.Signal(signal))
	}
}

// race has schedulers begin at the same moment to find devices for pods with a claim each, and returns how long it
// takes until a condition holds.
func (c *cluster) race(prefix string, pods int, schedulers []string, settled func(t *assert.CollectT)) time.Duration {
	c.T.Helper()
	var claims []string
	var all []*corev1.Pod
	for i := range pods {
		claims = append(claims, fmt.Sprintf("%s-%d", prefix, i))
		all = append(all, newPod(claims[i], schedulers[i%len(schedulers)], claims[i]))
	}
	c.createClaims(claims...)
	c.signal(syscall.SIGSTOP, schedulers...)
	c.Create(all...)
	c.signal(syscall.SIGCONT, schedulers...)
	begun := time.Now()
	c.Eventually(settled)
	return time.Since(begun)
}

// raceOnce races for all devices, with the webhook: each has one owner, and each owner's pod is bound.
func (c *cluster) raceOnce(t *testing.T, prefix string, schedulers []string) (took time.Duration) {
	t.Helper()
	took = c.race(prefix, racePods, schedulers, func(t *assert.CollectT) {
		assert.Equal(t, raceTotal, c.verdict.taken())
		assert.Len(t, testbed.Bound(c.Pods()), raceTotal)
	})
	c.verdict.catchUp(t, c.Client())
	refused := c.Metric("globalreserve_decisions_total", "verb", "resourceclaims", "result", "refused")
	t.Logf("with the webhook: all %d devices taken, and as many pods bound, after %v; %d refused so far",
		raceTotal, took.Round(time.Millisecond), refused)
	require.Empty(t, c.verdict.doubles())
	require.Len(t, c.allocated(), raceTotal)
	return took
}
