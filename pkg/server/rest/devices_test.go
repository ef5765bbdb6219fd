package rest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const gpu = "nvidia.com/gpu"

// anyGPU stands for a cluster in which every claim asks for one GPU, those with k80 in
// their name for a K80, and in which allocation "missing" does not exist.
type anyGPU struct{ t testing.TB }

func (c anyGPU) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r := &ledger.DeviceRequest{}
	for _, name := range pod.Devices.Claims {
		spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1}
		if strings.Contains(name, "k80") {
			spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": "K80"}}
		}
		compiled, err := devices.Compile(field.NewPath("spec"), spec)
		require.NoError(c.t, err)
		r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name, UID: "uid"})
		r.Requests = append(r.Requests, compiled)
		if name == "missing" {
			return &ledger.DeviceRequest{Claims: r.Claims, Err: "there is no claim missing"}
		}
	}
	return r
}

func claiming(pod *v1.Pod, allocations string) *v1.Pod {
	pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: allocations}
	return pod
}

// withDevices gives node-1 a P100 and two K80.
func withDevices(d *fixture) {
	d.Question.Devices = anyGPU{d.t}.Devices
	var list []devices.Device
	for id, model := range map[string]string{"gpu-0": "P100", "gpu-1": "K80", "gpu-2": "K80"} {
		list = append(list, devices.Device{Name: id, Resource: gpu, ID: id, Properties: map[string]string{"model": model}})
	}
	d.ledger.ObserveDevices("node-1", list)
}

func TestDurableReserveRefusesClaims(t *testing.T) {
	bubble(t, func(t *testing.T, d *fixture) {
		withDevices(d)
		taken := gangOf("node-1", claiming(aPod("a", "1", "1Gi"), "k80"))
		require.Empty(t, d.reserve(taken).Error)
		for allocations, want := range map[string]string{
			"missing": "DeviceClaimUnusable", "k80": "DeviceClaimInUse", "k80-x,k80-y": "InsufficientDevices",
		} {
			answer := d.reserve(gangOf("node-1", claiming(aPod("b", "1", "1Gi"), allocations)))
			require.Len(t, answer.Rejections, 1, allocations)
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
	f.Question.Devices = anyGPU{t}.Devices
	for node, model := range map[string]string{"node-2": "P100", "node-3": "K80"} {
		f.ledger.ObserveDevices(node, []devices.Device{{
			Name: node, Resource: gpu, ID: node,
			Properties: map[string]string{"model": model},
		}})
	}
	closest := func(name, claim string) string {
		f.Bring(claiming(aPod(name, "1", "1Gi"), claim))
		var answer reserver.ExplainAnswer
		f.get("/v1/explain?namespace=team-a&pod="+name, &answer)
		require.Zero(t, answer.FitCount)
		require.NotNil(t, answer.Closest)
		return answer.Closest.Node
	}
	info, err := cluster.Reader{Table: f.ledger.Table()}.NewPod(claiming(aPod("first", "1", "1Gi"), "k80-first"))
	require.NoError(t, err)
	p := info.Placement("node-3")
	p.Devices = anyGPU{t}.Devices(info)
	_, refused := f.ledger.StartBind(&p, time.Now())
	require.Nil(t, refused)
	assert.Equal(t, "node-3", closest("second", "k80-second"), "it is in use")

	f.ledger.RemovePod(ledger.PodRef{Namespace: "team-a", Name: "first", UID: p.Pod.UID}, 0)
	f.ledger.ObserveDevices("node-3", nil)
	assert.Equal(t, "node-2", closest("third", "k80-third"), "a device of the resource, though of another kind")
}

// The devices of DRA on a node are told with their claims, and those of other namespaces without names.
func TestNodeWithDRADevices(t *testing.T) {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "node-1", ResourceSliceCount: 1},
			NodeName: ptr.To("node-1"), Devices: []resourcev1.Device{
				{Name: "gpu-1"}, {Name: "gpu-0"},
			},
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
	f.ResourceClaims = arbitertest.NewClaims(t, slice, claim("team-a", "gpu-0"), claim("team-a", "gpu-1"),
		claim("team-b", "gpu-1"))
	f.start(Limits{})
	var answer reserver.NodeAnswer
	f.get("/v1/nodes/node-2", &answer)
	assert.Empty(t, answer.DRADevices)

	f.reads = map[string]bool{"team-a": true}
	code, told := f.askAs(&user.DefaultInfo{Name: "tenant"}, http.MethodGet, "/v1/nodes/node-1", nil)
	require.Equal(t, http.StatusOK, code, told)
	require.NoError(t, json.Unmarshal([]byte(told), &answer))
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
