package deletedpods

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func claimOfGPU(t *testing.T, given string) *ledger.DeviceRequest {
	compiled, err := devices.Compile(field.NewPath("spec"),
		&v1alpha1.ExtendedResourceClaimSpec{ResourceName: "nvidia.com/gpu", Count: 1})
	require.NoError(t, err)
	return &ledger.DeviceRequest{
		Claims:   []ledger.DeviceClaimRef{{Namespace: "ns", Name: "c", UID: "uid-of-c"}},
		Requests: []*devices.Request{compiled}, Given: given,
	}
}

// TestDRAOfDeletedPods keeps all that a pod had but what DRA gave it, which goes back to DRA.
func TestDRAOfDeletedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		placementtest.DRA(w.ledger, 4000, "nvidia.com/gpu", "n")
		gpus, _ := w.ledger.Table().Lookup("nvidia.com/gpu")
		w.remove(pod("p", func(p *cluster.Pod) {
			p.Request.Amounts = append(p.Request.Amounts, resources.Amount{Column: gpus, Value: 2})
			p.Request.ByDRA = []resources.Column{gpus}
		}))
		synctest.Wait()
		back, err := convert.Slots(w.ledger.Table(), w.object("p"))
		require.NoError(t, err)
		held, _ := w.ledger.Slots()
		assert.EqualValues(t, 2000, held[0].Request.Value(resources.CPU))
		assert.Zero(t, held[0].Request.Value(gpus))
		assert.True(t, back[0].Request.Equal(held[0].Request), "the object says what is held")
	})
}

// TestDevicesOfDeletedPods keeps the second device, not the one that would be chosen
// now. The pod that comes has the same allocation.
func TestDevicesOfDeletedPods(t *testing.T) {
	bubble.Each(t, map[string]bool{"named after the pod": false, "renamed": true}, func(t *testing.T, taken bool) {
		w := newWorld(t)
		w.ledger.ObserveDevices("n", []devices.Device{
			{Name: "gpu-0", Resource: "nvidia.com/gpu", ID: "gpu-0"}, {Name: "gpu-1", Resource: "nvidia.com/gpu", ID: "gpu-1"},
		})
		object := "p"
		if taken {
			object = suffixed(pod("p", nil))
			w.write("p")
		}
		p := pod("p", nil)
		w.ledger.ObservePod(ledger.PodObservation{
			Pod: p.Ref, Node: p.Node, Request: p.Request,
			Devices: claimOfGPU(t, "gpu-1"),
		})
		slot, told, keep := w.Keep(p)
		require.True(t, keep)
		made, refused := w.ledger.RemovePodHolding(p.Ref, 0, slot)
		require.True(t, made)
		told(refused)
		synctest.Wait()
		rsv := w.object(object)
		require.NotNil(t, rsv)
		assert.Equal(t, []v1alpha1.SlotDevices{{ResourceName: "nvidia.com/gpu", Count: 1, DeviceIDs: []string{"gpu-1"}}},
			rsv.Spec.Slots[0].Devices)

		// A server that starts now holds the same again.
		rsv.CreationTimestamp = metav1.Now()
		again, err := convert.GrantedSlots(w.ledger.Table(), rsv)
		require.NoError(t, err)
		w.ledger.ReleaseSlots("ns", object)
		require.True(t, w.ledger.ObserveSlot(again[0]))
		other := ledger.Placement{Pod: pod("other", nil).Ref, Node: "n", Request: p.Request, Devices: claimOfGPU(t, "")}
		other.Devices.Claims[0].Name = "d"
		grant, refused := w.ledger.StartBind(&other, time.Now())
		require.Nil(t, refused)
		assert.Equal(t, []string{"gpu-0"}, convert.DeviceIDs(grant.Devices),
			"who may not use the capacity gets another device")

		next := ledger.Placement{
			Pod: pod("next", nil).Ref, Node: "n", Request: p.Request, Devices: claimOfGPU(t, ""),
			Slots: []ledger.SlotRef{again[0].Ref},
		}
		grant, refused = w.ledger.StartBind(&next, time.Now())
		require.Nil(t, refused)
		assert.Equal(t, []string{"gpu-1"}, convert.DeviceIDs(grant.Devices))
		assert.Equal(t, again[0].Ref, grant.Slot)
	})
}
