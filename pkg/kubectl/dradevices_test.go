package kubectl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// addDRA gives the cluster four devices of a slice, of which two are allocated, one of them twice, and one that is
// gone.
func (r *rig) addDRA() {
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("node-1"), Pool: resourcev1.ResourcePool{
			Name: "node-1", Generation: 1,
			ResourceSliceCount: 1,
		},
		Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}, {Name: "gpu-2"}},
	}}
	require.NoError(r.t, r.kube.Tracker().Add(slice))
	for name, device := range map[string]string{"a": "gpu-0", "b": "gpu-1", "c": "gpu-1", "d": "gone"} {
		require.NoError(r.t, r.kube.Tracker().Add(&resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
			Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{
						{Request: "r", Driver: "gpu.example.com", Pool: "node-1", Device: device},
					},
				}},
				ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + name}},
			},
		}))
	}
}

func TestDRADevices(t *testing.T) {
	r := newRig(t)
	r.addDRA()
	assert.Equal(t, `NODE     RESOURCE          ID             STATUS      CLAIM                 POD
         gpu.example.com   node-1/gone    Bound       default/d             pod-d
node-1   gpu.example.com   node-1/gpu-0   Bound       default/a             pod-a
node-1   gpu.example.com   node-1/gpu-1   Double      default/b,default/c   pod-b,pod-c
node-1   gpu.example.com   node-1/gpu-2   Available   <none>                <none>
`, r.run("devices").String())
	assert.Equal(t, `NODE     RESOURCE          ID             STATUS      CLAIM    POD
node-1   gpu.example.com   node-1/gpu-2   Available   <none>   <none>
`, r.run("devices", "--free", "--resource", "gpu.example.com").String())
	assert.Contains(t, r.run("devices", "gpu.example.com/node-1/gone", "-o", "wide").String(), "InNoResourceSlice")
}
