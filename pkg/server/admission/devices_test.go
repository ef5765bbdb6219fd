package admission_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
)

const gpu = "nvidia.com/gpu"

// claimsOfGPUs stands for a cluster in which each claim asks for one GPU: one whose name
// begins with k80 for a K80, "missing" for one that nobody can use.
type claimsOfGPUs struct{ t *testing.T }

func (c claimsOfGPUs) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r := &ledger.DeviceRequest{Err: pod.Devices.Err, Given: pod.Devices.Given}
	for _, name := range pod.Devices.Claims {
		spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1}
		if strings.HasPrefix(name, "k80") {
			spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": "K80"}}
		}
		compiled, err := devices.Compile(nil, spec)
		require.NoError(c.t, err)
		r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: "ns", Name: name, UID: "1"})
		r.Requests = append(r.Requests, compiled)
		if name == "missing" {
			return &ledger.DeviceRequest{Claims: r.Claims, Err: "there is no claim missing"}
		}
	}
	return r
}

// newDeviceWorld has a P100 and two K80 on node a.
func newDeviceWorld(t *testing.T) *world {
	w := newWorld(t)
	w.question.Devices = claimsOfGPUs{t}.Devices
	var list []devices.Device
	for id, model := range map[string]string{"gpu-0": "P100", "gpu-1": "K80", "gpu-2": "K80"} {
		list = append(list, devices.Device{Name: id, Resource: gpu, ID: id, Properties: map[string]string{"model": model}})
	}
	w.ledger.ObserveDevices("a", list)
	return w
}

func claiming(p *v1.Pod, claims string) *v1.Pod {
	p.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	return p
}

// given returns the devices an object says its pod was given.
func given(annotations map[string]string) string {
	return annotations[v1alpha1.ExtendedResourcesAnnotation]
}

// owned tells which pods have which devices.
func (w *world) owned() map[string]string {
	owned := map[string]string{}
	node, _, _ := w.ledger.Node("a")
	for _, d := range node.Devices {
		for _, p := range d.Pods {
			owned[d.ID] += p.Name
		}
	}
	return owned
}

// A pod that names other claims after its binding was allowed gets other devices with
// the next. The first binding cannot be carried out: the pod has changed.
func TestClaimsThatChangeBetweenBindings(t *testing.T) {
	cases := map[string]struct{ before, after, first, second string }{
		"another device":  {"k80-a", "any", "gpu-1", "gpu-0"},
		"more devices":    {"k80-a", "k80-a,any", "gpu-1", "gpu-1,gpu-0"},
		"fewer devices":   {"k80-a,any", "any", "gpu-1,gpu-0", "gpu-0"},
		"no claims":       {"k80-a", "", "gpu-1", ""},
		"claims at last":  {"", "k80-a", "", "gpu-1"},
		"another order":   {"k80-a,any", "any,k80-a", "gpu-1,gpu-0", "gpu-0,gpu-1"},
		"the same device": {"k80-a", "k80-b", "gpu-1", "gpu-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.add(claiming(pod("p", "1"), tc.before))
			first, refused := w.bind(binding("p", "a"))
			require.Nil(t, refused)
			assert.Equal(t, tc.first, given(first.Annotations))
			w.change("p", func(p *v1.Pod) { claiming(p, tc.after) })
			w.show("p")
			second, refused := w.bind(binding("p", "a"))
			require.Nil(t, refused)
			assert.Equal(t, tc.second, given(second.Annotations))

			require.Error(t, w.carryOut(first))
			require.NoError(t, w.carryOut(second))
			w.show("p")
			want := map[string]string{}
			for _, id := range strings.FieldsFunc(tc.second, func(r rune) bool { return r == ',' }) {
				want[id] = "p"
			}
			assert.Equal(t, want, w.owned())
			require.NoError(t, ledgertest.CheckInvariants(w.ledger.Reader))
		})
	}
}
