package extender

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const gpu = "nvidia.com/gpu"

// gpuClaims stands for a cluster in which every claim asks for one GPU; "missing" does
// not exist.
type gpuClaims struct{}

func (gpuClaims) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r := &ledger.DeviceRequest{Err: pod.Devices.Err, Given: pod.Devices.Given}
	for _, name := range pod.Devices.Claims {
		compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1})
		if err != nil {
			panic(err)
		}
		r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name, UID: "1"})
		r.Requests = append(r.Requests, compiled)
		if name == "missing" {
			return &ledger.DeviceRequest{Err: "there is no claim missing"}
		}
	}
	return r
}

func claiming(name, claims string) *v1.Pod {
	p := newPod(name)
	p.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	return p
}

// newDeviceWorld has a GPU on nodes a and b each, and none on c. A pod with claim
// "of-a" has that of a; on b there is capacity for one pod more, on the others for more.
func newDeviceWorld(t *testing.T) *world {
	w := newWorld(t)
	w.question.Devices = gpuClaims{}.Devices
	for _, node := range []string{"a", "b", "c"} {
		w.node(node, 4000, 8e9)
		if node != "c" {
			w.ledger.ObserveDevices(node, []devices.Device{{Name: "gpu-" + node, Resource: gpu, ID: "gpu-" + node}})
		}
	}
	w.runClaiming("on-a", "a", "of-a")
	w.run("on-b", "b", 3000, 1e9)
	return w
}

// runClaiming has a bound pod of one CPU have the device of a node.
func (w *world) runClaiming(name, node, claim string) {
	p := claiming(name, claim)
	p.Spec.NodeName = node
	p.Annotations[v1alpha1.ExtendedResourcesAnnotation] = "gpu-" + node
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(p)
	require.NoError(w.t, err)
	o := info.Observation()
	o.Devices = gpuClaims{}.Devices(info)
	w.ledger.ObservePod(o)
}

// TestPreemptForDevices offers victims of which some have the device.
func TestPreemptForDevices(t *testing.T) {
	victims := func(uids ...string) *extenderv1.MetaVictims {
		v := &extenderv1.MetaVictims{}
		for _, uid := range uids {
			v.Pods = append(v.Pods, &extenderv1.MetaPod{UID: uid})
		}
		return v
	}
	cases := map[string]struct {
		claims     string
		before     func(w *world)
		candidates map[string]*extenderv1.MetaVictims
		kept       []string
	}{
		"the pod that has the device": {"x", nil, map[string]*extenderv1.MetaVictims{"a": victims("uid-on-a")}, []string{"a"}},
		"another pod there": {
			"x", func(w *world) { w.run("other", "a", 1000, 1e9) },
			map[string]*extenderv1.MetaVictims{"a": victims("other")},
			[]string{},
		},
		"the pod that has the allocation": {"of-a", nil, map[string]*extenderv1.MetaVictims{"a": victims("uid-on-a")}, []string{"a"}},
		"the allocation is another node's": {
			"of-a", nil, map[string]*extenderv1.MetaVictims{"b": victims("on-b")}, []string{},
		},
		"capacity, and the device is free": {
			"x", func(w *world) { w.run("more", "b", 1000, 1e9) },
			map[string]*extenderv1.MetaVictims{"b": victims("more"), "c": victims("none")},
			[]string{"b"},
		},
		"too few even so":    {"x,y", nil, map[string]*extenderv1.MetaVictims{"a": victims("uid-on-a")}, []string{}},
		"no such allocation": {"missing", nil, map[string]*extenderv1.MetaVictims{"a": victims("uid-on-a")}, []string{}},
		"a device that is held is no victim's": {
			"x", func(w *world) {
				w.ledger.RemovePod(ledger.PodRef{Namespace: "ns", Name: "on-a", UID: "uid-on-a"}, 2)
				w.run("other", "a", 1000, 1e9)
				slot := ledger.Slot{Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, Node: "a", Policy: ledger.Once}
				slot.Request = &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1000}}}
				slot.Devices = &ledger.DeviceRequest{Requests: gpuClaims{}.Devices(&cluster.Pod{Devices: &cluster.DeviceAnnotations{Claims: []string{"h"}}}).Requests}
				require.True(w.t, w.ledger.ObserveSlot(slot))
			},
			map[string]*extenderv1.MetaVictims{"a": victims("other")},
			[]string{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newDeviceWorld(t)
			if tc.before != nil {
				tc.before(w)
			}
			w.create(claiming("p", tc.claims))
			var got extenderv1.ExtenderPreemptionResult
			w.ask("preempt", extenderv1.ExtenderPreemptionArgs{Pod: newPod("p"), NodeNameToMetaVictims: tc.candidates}, &got)
			kept := []string{}
			for node := range got.NodeNameToMetaVictims {
				kept = append(kept, node)
			}
			assert.ElementsMatch(t, tc.kept, kept)
			view, ok := w.ledger.Allocation(ledger.PodRef{Namespace: "ns", Name: "on-a", UID: types.UID("uid-on-a")})
			if ok {
				assert.Equal(t, []string{"gpu-a"}, view.Given[0].IDs, "nothing was changed")
			}
			require.NoError(t, ledgertest.CheckInvariants(w.ledger.Reader))
		})
	}
}
