package notices

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func request(milliCPU int64) *resources.Request {
	return &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: milliCPU}, {Column: resources.Pods, Value: 1},
	}}
}

func newPod(name string, milliCPU int64) *podinfo.Info {
	return &podinfo.Info{
		Ref: ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(name)}, Request: request(milliCPU),
	}
}

var ref = ledger.HoldRef{Namespace: "ns", Name: "r", Slot: "s"}

// newRig has nodes full and held of 4 CPUs: one with a pod of 4, one with a hold of 3.
func newRig(t *testing.T, candidates ...ledger.HoldRef) (*Blame, *events.FakeRecorder) {
	l := ledger.New(ledger.Options{})
	for _, node := range []string{"full", "held"} {
		l.ObserveNode(ledger.NodeObservation{Name: node, Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 10},
		}})
	}
	l.ObservePod(ledger.PodObservation{Pod: newPod("there", 0).Ref, Node: "full", Request: request(4000)})
	require.True(t, l.ObserveHold(ledger.Hold{Ref: ref, Node: "held", Policy: ledger.Once, Request: request(3000)}))
	recorder := events.NewFakeRecorder(1000)
	return New(l, func(*podinfo.Info) []ledger.HoldRef { return candidates }, noDevices, recorder), recorder
}

func noDevices(*podinfo.Info) *ledger.DeviceRequest { return nil }

// TestRefusedForDevices has room for the pod everywhere, and its device is kept.
func TestRefusedForDevices(t *testing.T) {
	compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "nvidia.com/gpu", Count: 1})
	require.NoError(t, err)
	wanted := &ledger.DeviceRequest{Requests: []*devices.Request{compiled}}
	l := ledger.New(ledger.Options{})
	l.ObserveNode(ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 10}}})
	l.ObserveDevices("n", []devices.Device{{Name: "gpu-0", Resource: "nvidia.com/gpu", ID: "gpu-0"}})
	require.True(t, l.ObserveHold(ledger.Hold{Ref: ref, Node: "n", Policy: ledger.Once, Request: request(1000), Devices: wanted}))
	recorder := events.NewFakeRecorder(1)
	b := New(l, func(*podinfo.Info) []ledger.HoldRef { return nil }, func(*podinfo.Info) *ledger.DeviceRequest { return wanted }, recorder)
	b.Refused(newPod("p", 1000), []string{"n"})
	require.Len(t, recorder.Events, 1)
	assert.Equal(t, "Warning RoomReserved node n would have room for this pod, but reservation ns/r/s keeps it for others", <-recorder.Events)
}

func TestRefused(t *testing.T) {
	const blamed = "Warning RoomReserved node held would have room for this pod, but reservation ns/r/s keeps it for others"
	both := []string{"full", "held", "unknown"}
	cases := map[string]struct {
		milliCPU   int64
		offered    []string
		candidates []ledger.HoldRef
		want       string
	}{
		"because of the hold":                      {milliCPU: 2000, offered: both, want: blamed},
		"it would not fit without the hold either": {milliCPU: 5000, offered: both},
		"the node was not offered":                 {milliCPU: 2000, offered: []string{"full"}},
		"it fits beside the hold":                  {milliCPU: 1000, offered: both},
		"the hold is for it":                       {milliCPU: 2000, offered: both, candidates: []ledger.HoldRef{ref}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b, recorder := newRig(t, tc.candidates...)
			b.Refused(newPod("p", tc.milliCPU), tc.offered)
			close(recorder.Events)
			assert.Equal(t, tc.want, <-recorder.Events)
		})
	}
}

// TestHowOften checks that pods tried again and again are told now and then.
func TestHowOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, recorder := newRig(t)
		told := func() int {
			n := len(recorder.Events)
			for range n {
				<-recorder.Events
			}
			return n
		}
		for range 100 {
			b.Refused(newPod("p", 2000), []string{"held"})
		}
		assert.Equal(t, 1, told())
		<-time.After(repeatAfter)
		b.Refused(newPod("p", 2000), []string{"held"})
		assert.Equal(t, 1, told())
		for i := range 10 * eventBurst {
			b.Refused(newPod(fmt.Sprint("p-", i), 2000), []string{"held"})
		}
		assert.Equal(t, eventBurst-1, told(), "all pods together, right after one")
		<-time.After(lookAfter)
		b.Refused(newPod(fmt.Sprint("p-", 10*eventBurst-1), 2000), []string{"held"})
		assert.Equal(t, 1, told(), "one that was left out")
	})
}
