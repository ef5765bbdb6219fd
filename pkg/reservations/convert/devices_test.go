package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func gpus(claim string, count int32) v1alpha1.SlotDevices {
	return v1alpha1.SlotDevices{
		ClaimName: claim, ResourceName: "nvidia.com/gpu", Count: count,
		MatchProperties: map[string]string{"model": "K80"},
		MatchExpressions: []v1alpha1.SlotDeviceRequirement{
			{Key: "memory", Operator: v1alpha1.PropertyGt, Values: []string{"8Gi"}},
		},
		ExtendedResourceNames: []string{"gpu-0"},
	}
}

// TestSlotsWithDevices makes an object of slots and the slots of it again.
func TestSlotsWithDevices(t *testing.T) {
	table := resources.NewTable()
	asked, err := Slots(table, reservation(func(rsv *v1alpha1.Reservation) {
		rsv.Spec.Slots[0].Devices = []v1alpha1.SlotDevices{gpus("c", 2), {ResourceName: "x.io/fpga", Count: 1}}
	}))
	require.NoError(t, err)
	require.NotNil(t, asked[0].Devices)
	assert.Equal(t, []ledger.DeviceClaimRef{{Namespace: "ns", Name: "c"}, {}}, asked[0].Devices.Claims)
	assert.Equal(t, "2 nvidia.com/gpu (memory Gt 8Gi; model In K80) with gpu-0", asked[0].Devices.Requests[0].String())
	assert.Equal(t, "1 x.io/fpga", asked[0].Devices.Requests[1].String())
	assert.Nil(t, asked[1].Devices, "the other slot has none")

	made := Object(table, asked, time.Minute, MadeByReserve)
	KeepDevices(&made.Spec.Slots[0], []ledger.GivenDevices{{IDs: []string{"a", "b"}}, {IDs: []string{"f"}}})
	again, err := GrantedSlots(table, made)
	require.NoError(t, err)
	require.Len(t, again, 1, "the other slot says nothing of its node")
	assert.True(t, again[0].Devices.Same(asked[0].Devices))
	assert.Equal(t, "a,b,f", again[0].Devices.Given)

	made.Status.Slots = []v1alpha1.SlotStatus{{Name: "a", NodeName: "node-1", Devices: []string{"c", "d", "f"}}}
	again, err = GrantedSlots(table, made)
	require.NoError(t, err)
	assert.Equal(t, "c,d,f", again[0].Devices.Given, "the status is newer")
}

func TestSlotDevicesThatMakeNoSense(t *testing.T) {
	changed := func(claim string, change func(*v1alpha1.SlotDevices)) []v1alpha1.SlotDevices {
		d := gpus(claim, 1)
		change(&d)
		return []v1alpha1.SlotDevices{d}
	}
	cases := map[string]struct {
		a, b []v1alpha1.SlotDevices
		want string
	}{
		"a condition": {
			a: changed("", func(d *v1alpha1.SlotDevices) { d.MatchExpressions[0].Values = []string{"much"} }),
			want: `slot a: devices[0].matchExpressions[0].values[0]: Invalid value: "much": write a number or a quantity, ` +
				`such as 12 or 12Gi`,
		},
		"more names than devices": {
			b:    changed("", func(d *v1alpha1.SlotDevices) { d.ExtendedResourceNames = []string{"gpu-0", "gpu-1"} }),
			want: "slot b: devices[0].extendedResourceNames: ",
		},
		"a claim of two slots": {
			a: []v1alpha1.SlotDevices{gpus("c", 1)}, b: []v1alpha1.SlotDevices{gpus("c", 1)},
			want: "slot b: claim c is that of slot a already",
		},
		"a claim twice": {a: []v1alpha1.SlotDevices{gpus("c", 1), gpus("c", 1)}, want: "slot a: claim c is named twice"},
		"deviceIDs of a person": {
			a:    changed("c", func(d *v1alpha1.SlotDevices) { d.DeviceIDs = []string{"x"} }),
			want: "slot a: deviceIDs are written by the server",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Slots(resources.NewTable(), reservation(func(rsv *v1alpha1.Reservation) {
				rsv.Spec.Slots[0].Devices, rsv.Spec.Slots[1].Devices = tc.a, tc.b
			}))
			assert.ErrorContains(t, err, tc.want)
		})
	}
}
