package devices

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
type cluster struct{ testbed.Cluster }

// setup says what a cluster is like.
type setup struct {
	// own is a control plane of its own; nil is the shared one.
	own   *controlplane.Options
	nodes int
	// admission has the API server ask about bindings.
	admission bool
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
	c := &cluster{testbed.NewCluster(t, cp)}
	c.AddNodes(s.nodes, controlplane.NodeTemplate{})
	if s.admission {
		c.StartAsked(clusterload.ServerOptions{Args: s.args})
		return c
	}
	c.StartServer(clusterload.ServerOptions{Args: s.args})
	return c
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.T = t
	return &inner
}

// create creates a pod that names a claim and asks for a tenth of a CPU.
func (c *cluster) create(name, schedulerName, claim string) *corev1.Pod {
	c.T.Helper()
	return c.CreatePod(name, schedulerName, "100m", testbed.Annotated(v1alpha1.ExtendedResourceClaimsAnnotation, claim))
}

// given is what a pod was told it has.
func given(pod *corev1.Pod) string { return pod.Annotations[v1alpha1.ExtendedResourcesAnnotation] }

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

// awaitDevice waits until a device is in a phase.
func (c *cluster) awaitDevice(name string, phase v1alpha1.ExtendedResourcePhase) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		device, err := c.Devices().Get(c.T.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, device.Status.Phase, "%+v", device.Status)
		}
	})
}
