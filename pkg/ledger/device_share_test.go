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

// wantGPU asks for one GPU by a claim: of a model, or any where that is empty.
func wantGPU(t *testing.T, allocation, model string) *ledger.DeviceRequest {
	spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "gpu", Count: 1}
	if model != "" {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	compiled, err := devices.Compile(nil, spec)
	require.NoError(t, err)
	return &ledger.DeviceRequest{
		Claims:   []ledger.DeviceClaimRef{{Namespace: "ns", Name: allocation, UID: types.UID(allocation)}},
		Requests: []*devices.Request{compiled},
	}
}

// TestGangsShareDevices has gangs of which one pod by itself would be given the device
// that only another one of the gang can use.
func TestGangsShareDevices(t *testing.T) {
	cases := map[string]struct {
		models []string // of the pods' claims, in order
		want   []string // what each is given; nil: refused
	}{
		"each in its turn":      {[]string{"K80", ""}, []string{"gpu-0", "gpu-1"}},
		"the choosy one last":   {[]string{"", "K80"}, []string{"gpu-1", "gpu-0"}},
		"three, one is choosy":  {[]string{"", "", "K80"}, []string{"gpu-1", "gpu-2", "gpu-0"}},
		"two, both are choosy":  {[]string{"", "P100", "K80"}, []string{"gpu-2", "gpu-1", "gpu-0"}},
		"more than there are":   {[]string{"", "K80", "K80"}, nil},
		"one alone cannot have": {[]string{"", "A100"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.Options{})
			l.ObserveNode(ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.Pods, Value: 10}}})
			var list []devices.Device
			for k, model := range []string{"K80", "P100", "V100"} {
				id := "gpu-" + string(rune('0'+k))
				list = append(list, devices.Device{Name: id, Resource: "gpu", ID: id, Properties: map[string]string{"model": model}})
			}
			l.ObserveDevices("n", list)
			var placements []ledger.Placement
			var slots ledger.Plan
			request := &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}
			for k, model := range tc.models {
				pod := "p" + string(rune('0'+k))
				wanted := wantGPU(t, "claim-of-"+pod, model)
				placements = append(placements, ledger.Placement{
					Pod: ledger.PodRef{Namespace: "ns", Name: pod, UID: types.UID(pod)}, Node: "n", Request: request, Devices: wanted,
				})
				slots.Slots = append(slots.Slots, ledger.Slot{
					Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: pod}, Node: "n", Request: request, Policy: ledger.Once, Devices: wanted,
				})
			}
			result := l.Reserve(ledger.NewPlan(placements, ledger.AllOrNothing, time.Time{}), time.Now())
			var got []string
			views, _ := l.Slots()
			for _, v := range views {
				got = append(got, v.Given[0].IDs...)
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, len(tc.want), result.Granted)
			assert.Equal(t, tc.want == nil, len(result.Rejections) > 0)
			require.NoError(t, l.CheckInvariants())
			l.Unreserve(placements)

			placed := l.Reserve(slots, time.Now())
			got = nil
			for _, v := range l.ReservationSlots("ns", "r") {
				got = append(got, v.Given[0].IDs...)
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, len(tc.want), placed.Granted)
			require.NoError(t, l.CheckInvariants())
		})
	}
}
