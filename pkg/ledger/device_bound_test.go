package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// TestBoundPodKeepsItsDevices edits what a pod says of its devices after it was seen bound:
// its containers have them still, so nobody else may be given them.
func TestBoundPodKeepsItsDevices(t *testing.T) {
	says := func(r *ledger.DeviceRequest, given string) *ledger.DeviceRequest {
		o := *r
		o.Given = given
		return &o
	}
	nic := func(allocation string, uid types.UID) *ledger.DeviceRequest {
		compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "nic", Count: 1})
		require.NoError(t, err)
		return &ledger.DeviceRequest{
			Claims:   []ledger.DeviceClaimRef{{Namespace: "ns", Name: allocation, UID: uid}},
			Requests: []*devices.Request{compiled},
		}
	}
	mine := wantGPU(t, "mine", "")
	cases := map[string]struct {
		edited *ledger.DeviceRequest
		uid    types.UID // of the claim the pod has then
	}{
		"nothing":                         {says(mine, "0"), "mine"},
		"its devices are removed":         {says(mine, ""), "mine"},
		"another device":                  {says(mine, "1"), "mine"},
		"one more":                        {says(mine, "0,1"), "mine"},
		"its claims are removed":          {nil, "mine"},
		"another claim":                   {says(wantGPU(t, "theirs", ""), "0"), "mine"},
		"another claim of other devices":  {says(nic("theirs", "theirs"), "0"), "mine"},
		"the claim is made anew, of nics": {says(nic("mine", "new"), "0"), "new"},
		"the claim is gone": {
			&ledger.DeviceRequest{Claims: []ledger.DeviceClaimRef{{Namespace: "ns", Name: "mine"}}, Err: "gone", Given: "0"}, "mine",
		},
		"the claim is gone, and its devices removed": {
			&ledger.DeviceRequest{Claims: []ledger.DeviceClaimRef{{Namespace: "ns", Name: "mine"}}, Err: "gone"}, "mine",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.Options{})
			l.ObserveNode(ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.Pods, Value: 10}}})
			l.ObserveDevices("n", []devices.Device{
				{Name: "gpu-0", Resource: "gpu", ID: "0"}, {Name: "gpu-1", Resource: "gpu", ID: "1"}, {Name: "nic-0", Resource: "nic", ID: "0"},
			})
			pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "p"}
			request := &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}
			observe := func(r *ledger.DeviceRequest, version uint64) {
				l.ObservePod(ledger.PodObservation{Pod: pod, Node: "n", Request: request, Devices: r, ResourceVersion: version})
			}
			observe(says(mine, "0"), 1)
			observe(tc.edited, 2)
			view, ok := l.Allocation(pod)
			require.True(t, ok)
			assert.Equal(t, []ledger.GivenDevices{{
				Claim: ledger.DeviceClaimRef{Namespace: "ns", Name: "mine", UID: tc.uid}, Resource: "gpu", IDs: []string{"0"},
			}}, view.Given)
			require.NoError(t, l.CheckInvariants())
			next, rejection := l.StartBind(&ledger.Placement{
				Pod: ledger.PodRef{Namespace: "ns", Name: "q", UID: "q"}, Node: "n", Request: request, Devices: wantGPU(t, "q", ""),
			}, time.Now())
			require.Nil(t, rejection)
			assert.Equal(t, []string{"1"}, next.Devices, "the device of the other pod is not given out again")
			assert.True(t, l.RemovePod(pod, 3))
			require.NoError(t, l.CheckInvariants())
			next, rejection = l.StartBind(&ledger.Placement{
				Pod: ledger.PodRef{Namespace: "ns", Name: "r", UID: "r"}, Node: "n", Request: request, Devices: wantGPU(t, "mine", ""),
			}, time.Now())
			require.Nil(t, rejection, "the claim and the device are free once the pod is gone")
			assert.Equal(t, []string{"0"}, next.Devices)
		})
	}
}
