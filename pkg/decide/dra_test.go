package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

const gpuByCount v1.ResourceName = "nvidia.com/gpu"

// addGPU makes a pod that asks for two GPUs by count, which the watch brings at once.
func (c *apiCluster) addGPU(name string) *v1.Pod {
	p := sized(name, "1", 1)
	p.Spec.Containers[0].Resources.Requests[gpuByCount] = resource.MustParse("2")
	c.api.change(func() { c.api.touch(p) })
	c.api.put(p)
	c.show(name)
	return p
}

// give has the pod's scheduler write that DRA gave it GPUs. The watch has not brought that yet.
func (c *apiCluster) give(p *v1.Pod, claim string) {
	c.edit(p, func(p *v1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
			ResourceClaimName: claim,
			RequestMappings: []v1.ContainerExtendedResourceRequest{{
				ContainerName: p.Spec.Containers[0].Name, ResourceName: string(gpuByCount), RequestName: "r",
			}},
		}
	})
}

func (c *apiCluster) leavesGPUs() { placementtest.DRA(c.ledger, 4000, string(gpuByCount), "a") }

// refusedGPUs checks that an error says that DRA has given the pod nothing.
func refusedGPUs(t *testing.T, err error) {
	t.Helper()
	assertOutcome(t, gates.Refused, err)
	require.ErrorContains(t, err, "the status of a pod says what DRA gave it")
}

// waysToBind are the ways to bind a pod to node a.
var waysToBind = map[string]func(c *apiCluster, p *v1.Pod) error{
	"a Binding of others": func(c *apiCluster, p *v1.Pod) error {
		allowed, err := c.ask(ref(p), "a")
		if err == nil {
			err = c.carryOut(allowed)
		}
		return err
	},
	"/bind": func(c *apiCluster, p *v1.Pod) error {
		_, err := c.Bind(c.t.Context(), ref(p), "a")
		return err
	},
	"a scheduler in the process": func(c *apiCluster, p *v1.Pod) error {
		known := c.info(p)
		placement := c.question.For(known, "a")
		if _, _, err := c.KeepAll([]ledger.Placement{placement}, time.Minute); err != nil {
			return err
		}
		return c.BindKnown(auth.Inside(c.t.Context()), known, "a")
	},
}

// Where a node leaves GPUs to DRA, a pod is bound once its status says that it was given some, however late the watch
// is; one that is created with the node never is.
func TestPodsOfDRA(t *testing.T) {
	type bind = func(c *apiCluster, p *v1.Pod) error
	eachCluster(t, waysToBind, func(t *testing.T, c *apiCluster, bind bind) {
		c.leavesGPUs()
		p := c.addGPU("p")
		refusedGPUs(t, bind(c, p))
		c.give(p, "one")
		require.NoError(t, bind(c, p))
	})
	// Its Binding was refused for another reason before.
	eachCluster(t, waysToBind, func(t *testing.T, c *apiCluster, bind bind) {
		c.leavesGPUs()
		p := c.addGPU("p")
		c.give(p, "one")
		c.show("p")
		c.give(p, "two")
		require.NoError(t, bind(c, p))
	})
	// The first node comes after the pod was read.
	eachCluster(t, waysToBind, func(t *testing.T, c *apiCluster, bind bind) {
		p := c.addGPU("p")
		c.leavesGPUs()
		c.give(p, "one")
		require.NoError(t, bind(c, p))
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.leavesGPUs()
		p := sized("p", "1", 0)
		p.Spec.Containers[0].Resources.Requests[gpuByCount] = resource.MustParse("2")
		_, err := c.createPod(p, "a", "user")
		refusedGPUs(t, err)
	})
}

// claims has the pod's scheduler write how many CPUs the devices of its ResourceClaim take. The watch has not brought
// that yet.
func (c *apiCluster) claims(p *v1.Pod, cpus string) {
	c.edit(p, func(p *v1.Pod) {
		p.Status.NodeAllocatableResourceClaimStatuses = []v1.NodeAllocatableResourceClaimStatus{{
			ResourceClaimName: "cpus",
			Mapping: []v1.NodeAllocatableMappedResources{{
				Name: v1.ResourceCPU, Quantity: ptr.To(resource.MustParse(cpus)),
			}},
		}}
	})
}

// What the devices of a pod's ResourceClaims take of a node's CPU counts from the moment on at which the pod is bound,
// however late the watch is. What they took at an attempt before, on another node maybe, is no reason to refuse a node.
func TestPodsWhoseClaimsTakeCPU(t *testing.T) {
	eachCluster(t, waysToBind, func(t *testing.T, c *apiCluster, bind func(c *apiCluster, p *v1.Pod) error) {
		p := sized("p", "1", 1)
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "cpus", ResourceClaimName: ptr.To("cpus")}}
		c.api.change(func() { c.api.touch(p) })
		c.api.put(p)
		c.show("p")
		c.claims(p, "4")
		require.ErrorContains(t, bind(c, p), "cpu")
		c.show("p")
		advice, err := c.Filter(t.Context(), &PodQuery{Ref: ref(p)}, []string{"a"}, &Scratch{})
		require.NoError(t, err)
		assert.Equal(t, ledger.Fits, advice.Verdicts[0].Reason)
		c.claims(p, "2")
		require.NoError(t, bind(c, p))
		assert.EqualValues(t, 3000, c.cpu(p))
		c.show("p")
		assert.EqualValues(t, 3000, c.cpu(p))
	})
}
