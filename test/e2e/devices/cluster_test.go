package devices

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = testbed.Namespace
	scheduler = "extended-resource-scheduler"
)

// shared is the control plane of all tests that do not break it, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane with a GlobalReserve server.
type cluster struct {
	testbed.Cluster
	verdict *verdict
}

// setup says what a cluster is like.
type setup struct {
	// own is a control plane of its own; nil is the shared one.
	own   *controlplane.Options
	nodes int
	// gpus is how many GPUs each node offers by count, which are never to be exceeded; none where it is 0.
	gpus int64
	// admission has the API server ask about bindings.
	admission bool
	// proxied has the server reach the API server through a proxy.
	proxied bool
	// args are added to the server's command line.
	args []string
}

func newCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	var cp *controlplane.ControlPlane
	if s.own != nil {
		cp = controlplane.StartT(t, *s.own)
		require.NoError(t, crd.Prepare(t.Context(), cp))
	} else {
		cp = shared.StartT(t)
	}
	v := &verdict{gpus: s.gpus, pods: map[types.UID]*corev1.Pod{}}
	c := &cluster{Cluster: testbed.NewCluster(t, cp, v.look), verdict: v}
	v.watcher = c.Watcher
	c.AddNodes(s.nodes, nodeTemplate(s.gpus))
	switch {
	case s.proxied:
		var err error
		c.Proxy, err = c.StartFaultProxy()
		require.NoError(t, err)
		c.StartServer(clusterload.ServerOptions{Args: s.args, Proxy: c.Proxy})
	case s.admission:
		webhook, err := clusterload.NewWebhook(cp)
		require.NoError(t, err)
		c.StartServer(clusterload.ServerOptions{Args: slices.Concat(s.args, webhook.Args)})
		require.NoError(t, webhook.Install(t.Context(), cp, nil))
	default:
		c.StartServer(clusterload.ServerOptions{Args: s.args})
	}
	return c
}

// nodeTemplate is a node that offers some GPUs by count.
func nodeTemplate(gpus int64) (template controlplane.NodeTemplate) {
	if gpus > 0 {
		template.Allocatable = testbed.Requests("4")
		template.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
		template.Allocatable[testbed.GPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return template
}

// startScheduler starts a kube-scheduler of scheduler-config/extended-resource-scheduler.yaml under a name.
func (c *cluster) startScheduler(name string) {
	c.T.Helper()
	c.StartKubeScheduler(name, "extended-resource-scheduler.yaml", "schedulerName: "+scheduler, "schedulerName: "+name)
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.T = t
	return &inner
}

// patchDevice changes a device as it is now, or its status.
func (c *cluster) patchDevice(name, patch string, subresources ...string) {
	c.T.Helper()
	_, err := c.Devices().Patch(c.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		subresources...)
	require.NoError(c.T, err)
}

// patchPod changes a pod as it is now, or its status.
func (c *cluster) patchPod(name, patch string, subresources ...string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().Pods(namespace).Patch(c.T.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	require.NoError(c.T, err)
}

// newPod is a pod that names claims, if any, and asks for a tenth of a CPU.
func newPod(name, schedulerName, claims string, annotations ...string) *corev1.Pod {
	if claims != "" {
		annotations = append(annotations, v1alpha1.ExtendedResourceClaimsAnnotation, claims)
	}
	return testbed.NewPod(name, schedulerName, "100m", testbed.Annotated(annotations...))
}

// create creates one.
func (c *cluster) create(name, schedulerName, claims string, annotations ...string) *corev1.Pod {
	c.T.Helper()
	return c.Create(newPod(name, schedulerName, claims, annotations...))[0]
}

// given is what a pod was told it has.
func given(pod *corev1.Pod) string { return pod.Annotations[v1alpha1.ExtendedResourcesAnnotation] }

// forContainer is how lists of a pod that says it per container begin.
var forContainer = regexp.MustCompile(`(^|;) *[a-z0-9-]* *=`)

// idsOf are the devices of a pod, each once, whatever containers have them.
func idsOf(pod *corev1.Pod) []string { return eachOnce(given(pod)) }

// claimsOf are the claims that a pod names, each once, but for those it gets from templates.
func claimsOf(pod *corev1.Pod) []string {
	return slices.DeleteFunc(eachOnce(pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation]), func(name string) bool {
		return strings.HasPrefix(name, v1alpha1.ClaimTemplatePrefix)
	})
}

func eachOnce(list string) []string {
	names := split(strings.TrimPrefix(forContainer.ReplaceAllString(list, ","), ","))
	slices.Sort(names)
	return slices.Compact(names)
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func (c *cluster) boundPods() []corev1.Pod { return testbed.Bound(c.Pods()) }

// awaitClaim waits until a claim is in a phase and returns it.
func (c *cluster) awaitClaim(name string,
	phase v1alpha1.ExtendedResourceClaimPhase,
) (claim *v1alpha1.ExtendedResourceClaim) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		var err error
		claim, err = c.DeviceClaims().Get(c.T.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, claim.Status.Phase, "%+v", claim.Status)
		}
	})
	return claim
}

// awaitDevice waits until a device is in a phase and returns it.
func (c *cluster) awaitDevice(name string, phase v1alpha1.ExtendedResourcePhase) (device *v1alpha1.ExtendedResource) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		var err error
		device, err = c.Devices().Get(c.T.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, device.Status.Phase, "%+v", device.Status)
		}
	})
	return device
}

// awaitSeen waits until the server knows a claim.
func (c *cluster) awaitSeen(claim string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		claim, err := c.DeviceClaims().Get(c.T.Context(), claim, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, claim.Status.Phase, "the server has not seen it yet")
	})
}
