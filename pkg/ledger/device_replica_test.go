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

// TestReplicaHoldKeepsItsPods has a hold get its devices, which come late, while a pod uses
// it: in a replica, too, the pod goes on using it.
func TestReplicaHoldKeepsItsPods(t *testing.T) {
	main, replica := ledger.New(ledger.Options{}), ledger.NewReplica(ledger.Options{})
	node := ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.Pods, Value: 10}}}
	request := &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}
	ref := ledger.HoldRef{Namespace: "ns", Name: "r", Slot: "s"}
	pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "p"}
	main.ObserveNode(node)
	require.True(t, main.ObserveHold(ledger.Hold{
		Ref: ref, Node: "n", Request: request, Policy: ledger.Aligned, Devices: wantGPU(t, "mine", ""),
	}))
	_, rejection := main.StartBind(&ledger.Placement{Pod: pod, Node: "n", Request: request, Holds: []ledger.HoldRef{ref}}, time.Now())
	require.Nil(t, rejection)
	follow := func() {
		snapshot := main.Snapshot()
		for i := range snapshot.Holds {
			snapshot.Holds[i].Devices = nil // a replica is not told
			replica.CopyHold(&snapshot.Holds[i])
		}
		for i := range snapshot.Claims {
			replica.CopyClaim(&snapshot.Claims[i])
		}
	}
	replica.ObserveNode(node)
	follow()
	list := []devices.Device{{Name: "gpu-0", Resource: "gpu", ID: "0"}}
	require.True(t, main.ObserveDevices("n", list))
	replica.ObserveDevices("n", list)
	hold := main.Snapshot().Holds[0]
	require.Equal(t, []string{"0"}, hold.Given[0].IDs)
	hold.Devices = nil
	replica.CopyHold(&hold) // as the event says; none tells of the pod again
	require.NoError(t, replica.CheckInvariants())
	same := replica.Snapshot().Holds[0]
	assert.Equal(t, hold.Given, same.Given)
	assert.Equal(t, hold.Consumers, same.Consumers)
	claim, ok := replica.Claim(pod)
	require.True(t, ok)
	assert.Equal(t, ref, claim.Hold)
}
