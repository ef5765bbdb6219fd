package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// TestReplicaSlotKeepsItsPods has a slot get its devices, which come late, while a pod uses
// it: in a replica, too, the pod goes on using it.
func TestReplicaSlotKeepsItsPods(t *testing.T) {
	main, replica := ledger.New(ledger.Options{}), ledger.NewReplica(ledger.Options{})
	node := ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.Pods, Value: 10}}}
	request := &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}
	ref := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}
	pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "p"}
	main.ObserveNode(node)
	require.True(t, main.ObserveSlot(ledger.Slot{
		Ref: ref, Node: "n", Request: request, Policy: ledger.Aligned, Devices: wantGPU(t, "mine", ""),
	}))
	_, rejection := main.StartBind(&ledger.Placement{Pod: pod, Node: "n", Request: request, Slots: []ledger.SlotRef{ref}}, time.Now())
	require.Nil(t, rejection)
	follow := func() {
		snapshot := main.Snapshot()
		for i := range snapshot.Slots {
			snapshot.Slots[i].Devices = nil // a replica is not told
			replica.CopySlot(&snapshot.Slots[i])
		}
		for i := range snapshot.Allocations {
			replica.CopyAllocation(&snapshot.Allocations[i])
		}
	}
	replica.ObserveNode(node)
	follow()
	list := []devices.Device{{Name: "gpu-0", Resource: "gpu", ID: "0"}}
	require.True(t, main.ObserveDevices("n", list))
	replica.ObserveDevices("n", list)
	slot := main.Snapshot().Slots[0]
	require.Equal(t, []string{"0"}, slot.Given[0].IDs)
	slot.Devices = nil
	replica.CopySlot(&slot) // as the event says; none tells of the pod again
	require.NoError(t, replica.CheckInvariants())
	same := replica.Snapshot().Slots[0]
	assert.Equal(t, slot.Given, same.Given)
	assert.Equal(t, slot.Consumers, same.Consumers)
	allocation, ok := replica.Allocation(pod)
	require.True(t, ok)
	assert.Equal(t, ref, allocation.Slot)
}
