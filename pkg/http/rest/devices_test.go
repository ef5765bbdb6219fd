package rest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const gpu = "nvidia.com/gpu"

func claiming(pod *v1.Pod, allocations string) *v1.Pod {
	pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: allocations}
	return pod
}

func TestDurableReserveRefusesClaims(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		d.Question.Devices = placementtest.Claims
		placementtest.GPUs(d.ledger, "node-1", "gpu-0", "gpu-1")
		require.Empty(t, d.reserve(gangOf("node-1", claiming(aPod("a", "1", "1Gi"), "taken"))).Error)
		for claims, want := range map[string]string{
			"missing": "DeviceClaimUnusable", "taken": "DeviceClaimInUse", "x,y": "InsufficientDevices",
		} {
			answer := d.reserve(gangOf("node-1", claiming(aPod("b", "1", "1Gi"), claims)))
			require.Len(t, answer.Rejections, 1, claims)
			assert.Equal(t, want, answer.Rejections[0].Reason)
		}
		partial := gangOf("node-1 node-1", claiming(aPod("b", "1", "1Gi"), "missing"), aPod("c", "1", "1Gi"))
		partial.Mode = "Partial"
		assert.Equal(t, []string{"b"}, d.reserve(partial).FailedPods)
	})
}

// Where no node has a free device for a pod, the closest is one that has such a device at all.
func TestClosestNodeHasTheDevice(t *testing.T) {
	f := newFixture(t, Limits{})
	k80, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{
		ResourceName: gpu, Count: 1, Selector: &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": "K80"}},
	})
	require.NoError(t, err)
	asks := func(pod *cluster.Pod) *ledger.DeviceRequest {
		r := placementtest.Claims(pod)
		r.Requests[0] = k80
		return r
	}
	f.Question.Devices = asks
	for node, model := range map[string]string{"node-2": "P100", "node-3": "K80"} {
		properties := map[string]string{"model": model}
		f.ledger.ObserveDevices(node, []devices.Device{{Name: node, Resource: gpu, ID: node, Properties: properties}})
	}
	closest := func(name string) string {
		f.Bring(claiming(aPod(name, "1", "1Gi"), name))
		answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod="+name)
		require.Zero(t, answer.FitCount)
		require.NotNil(t, answer.Closest)
		return answer.Closest.Node
	}
	info, err := cluster.Reader{Table: f.ledger.Table()}.NewPod(claiming(aPod("first", "1", "1Gi"), "first"))
	require.NoError(t, err)
	p := info.Placement("node-3")
	p.Devices = asks(info)
	_, refused := f.ledger.StartBind(&p, time.Now())
	require.Nil(t, refused)
	assert.Equal(t, "node-3", closest("second"), "it is in use")

	f.ledger.RemovePod(ledger.PodRef{Namespace: "team-a", Name: "first", UID: p.Pod.UID}, 0)
	f.ledger.ObserveDevices("node-3", nil)
	assert.Equal(t, "node-2", closest("third"), "a device of the resource, though of another kind")
}

// The devices of DRA on a node are listed with their claims, and those of other namespaces without names.
func TestNodeWithDRADevices(t *testing.T) {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "node-1", ResourceSliceCount: 1},
			NodeName: ptr.To("node-1"), Devices: []resourcev1.Device{{Name: "gpu-1"}, {Name: "gpu-0"}},
		},
	}
	claim := func(namespace, device string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "of-" + device, UID: types.UID(namespace + device), ResourceVersion: "2",
			},
			Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{{
						Request: "r", Driver: "gpu.example.com", Pool: "node-1", Device: device,
					}},
				}},
				ReservedFor: []resourcev1.ResourceClaimConsumerReference{
					{Resource: "pods", Name: "p-" + device}, {APIGroup: "example.com", Resource: "jobs", Name: "j"},
				},
			},
		}
	}
	f := newBareFixture(t)
	f.ResourceClaims = decidetest.NewClaims(t, slice, claim("team-a", "gpu-0"), claim("team-a", "gpu-1"),
		claim("team-b", "gpu-1"))
	f.start(Limits{})
	answer := get[reserver.NodeAnswer](f, "/v1/nodes/node-2")
	assert.Empty(t, answer.DRADevices)

	f.reads = map[string]bool{"team-a": true}
	f.getAs("/v1/nodes/node-1", &answer)
	of := func(device string) reserver.DRAClaim {
		return reserver.DRAClaim{
			Namespace: "team-a", Claim: "of-" + device, UID: "team-a" + device, State: "Allocated",
			Pods: []string{"p-" + device},
		}
	}
	assert.Equal(t, []reserver.DRADevice{
		{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0", Claims: []reserver.DRAClaim{of("gpu-0")}},
		{
			Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-1", Double: true,
			Claims: []reserver.DRAClaim{of("gpu-1"), {State: "Allocated"}},
		},
	}, answer.DRADevices)
}
