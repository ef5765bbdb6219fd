package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const gpuName = "nvidia.com/gpu"

// gpuNode is a ledger with a node n that offers some GPUs by count and has some as devices.
type gpuNode struct {
	*ledger.Ledger
	t    *testing.T
	pods int
}

func newGPUNode(t *testing.T, offered int64, ids ...string) *gpuNode {
	n := &gpuNode{Ledger: ledger.New(ledger.Options{}), t: t}
	n.describe(ids...)
	n.offer(offered)
	return n
}

func (n *gpuNode) offer(count int64) { n.observe(count, false) }

// observe has a node offer so many GPUs by count, and DRA have some there.
func (n *gpuNode) observe(count int64, byDRA bool) {
	column, _ := n.Table().Offer(gpuName)
	o := ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{{Column: resources.Pods, Value: 100}}}
	if byDRA {
		o.DRA = []resources.Column{column}
	}
	if count > 0 {
		o.Allocatable = append(o.Allocatable, resources.Amount{Column: column, Value: count})
	}
	n.ObserveNode(o)
}

// describe makes the node have devices; one of which the ID ends with ! is not to be given out.
func (n *gpuNode) describe(ids ...string) {
	var list []devices.Device
	for _, id := range ids {
		id, out := strings.CutSuffix(id, "!")
		list = append(list, devices.Device{Name: id, Resource: gpuName, ID: id, Unschedulable: out})
	}
	n.ObserveDevices("n", list)
}

// ask is a pod that asks for some GPUs by count and for some by a claim.
func (n *gpuNode) ask(byCount, claimed int) *ledger.Placement {
	n.pods++
	name := fmt.Sprintf("p%d", n.pods)
	request := &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}
	request = request.AtLeast(n.Table(), gpuName, int64(byCount))
	p := &ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(name)}, Node: "n",
		Request: request,
	}
	if claimed > 0 {
		compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{
			ResourceName: gpuName,
			Count:        int32(claimed),
		})
		require.NoError(n.t, err)
		p.Devices = &ledger.DeviceRequest{
			Claims: []ledger.DeviceClaimRef{{Namespace: "ns", Name: name, UID: "1"}}, Requests: []*devices.Request{compiled},
		}
	}
	p.Request = p.Devices.Counted(n.Table(), p.Request)
	return p
}

// bind returns what a pod is given that may use slots, or "refused: " with the reason.
func (n *gpuNode) bind(byCount, claimed int, slots ...ledger.SlotRef) string {
	p := n.ask(byCount, claimed)
	p.Slots = slots
	fits := n.AppendFit(nil, p, []string{"n"})[0].Reason
	grant, rejection := n.StartBind(p, start)
	require.NoError(n.t, n.CheckInvariants())
	if rejection != nil {
		assert.Equal(n.t, rejection.Reason, fits, "what filter says")
		return "refused: " + rejection.Reason.String()
	}
	assert.Equal(n.t, ledger.Fits, fits, "what filter says")
	n.Confirm(p.Pod, "n")
	return ids(grant)
}

// ids lists what was granted.
func ids(grant ledger.Grant) string {
	var ids []string
	for _, g := range grant.Devices {
		ids = append(ids, g.IDs...)
	}
	return strings.Join(ids, ",")
}

// runs has a pod be found bound that asks for some GPUs by count and says that it has some devices.
func (n *gpuNode) runs(byCount int, said string) ledger.AllocationView {
	p := n.ask(byCount, 0)
	o := ledger.PodObservation{Pod: p.Pod, Node: "n", Request: p.Request, ResourceVersion: 1}
	if said != "" {
		o.Devices = &ledger.DeviceRequest{Given: said}
	}
	n.ObservePod(o)
	require.NoError(n.t, n.CheckInvariants())
	view, ok := n.Allocation(p.Pod)
	require.True(n.t, ok)
	return view
}

func (n *gpuNode) gpus() ledger.AmountView {
	view, _, _ := n.Node("n")
	for _, a := range view.Amounts {
		if a.Resource == v1.ResourceName(gpuName) {
			return a
		}
	}
	return ledger.AmountView{}
}

const (
	noCount   = "refused: InsufficientResource"
	noDevices = "refused: InsufficientDevices"
)

func TestClaimsAndCountsAreOneAccount(t *testing.T) {
	type ask struct{ byCount, claimed int }
	tests := map[string]struct {
		offered int64
		ids     string
		runs    []int // pods that are bound already, and of which nobody knows the devices
		asks    []ask
		want    []string
	}{
		"four of each": {
			4, "a b c d", nil,
			[]ask{{1, 0}, {0, 1}, {2, 0}, {1, 0}, {0, 1}},
			[]string{"a", "b", "c,d", noCount, noDevices},
		},
		"a pod that asks for both has the larger": {
			4, "a b c d", nil,
			[]ask{{3, 1}, {0, 2}, {1, 0}, {1, 0}},
			[]string{"a,b,c", noDevices, "d", noCount},
		},
		"pods of which nobody knows the devices": {
			4, "a b c d",
			[]int{1, 1},
			[]ask{{0, 3}, {0, 1}, {1, 0}, {0, 1}, {1, 0}},
			[]string{noCount, "a", "b", noCount, noCount},
		},
		"fewer devices than are offered": {
			4, "a b", nil,
			[]ask{{3, 0}, {0, 1}, {1, 0}, {1, 0}},
			[]string{"a,b", noDevices, "", noCount},
		},
		"more devices than are offered": {
			2, "a b c d", nil,
			[]ask{{0, 1}, {1, 0}, {0, 1}, {1, 0}},
			[]string{"a", "b", noCount, noCount},
		},
		"one is not to be given out": {
			3, "a! b c", nil,
			[]ask{{1, 0}, {1, 0}, {1, 0}, {0, 1}},
			[]string{"b", "c", noCount, noDevices},
		},
		"none by count, as while the device plugin is away": {
			0, "a b", nil,
			[]ask{{1, 0}, {0, 1}, {1, 1}, {0, 1}},
			[]string{noCount, "a", "b", noDevices},
		},
		"none by count, and pods that have some of it": {
			0, "a b c",
			[]int{2},
			[]ask{{0, 1}, {0, 1}},
			[]string{"a", noCount},
		},
		"no devices": {
			2, "", nil,
			[]ask{{1, 0}, {0, 1}, {1, 0}, {1, 0}},
			[]string{"", noDevices, "", noCount},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newGPUNode(t, tt.offered, strings.Fields(tt.ids)...)
			for _, count := range tt.runs {
				n.runs(count, "")
			}
			var got []string
			for _, a := range tt.asks {
				got = append(got, n.bind(a.byCount, a.claimed))
			}
			assert.Equal(t, tt.want, got)
			assert.GreaterOrEqual(t, n.gpus().Free, int64(0), "never more than there are")
		})
	}
}

// A pod that asks by count is refused by the kubelet where none is offered, also where it uses a slot that keeps
// devices.
func TestCountsOfASlotWithDevices(t *testing.T) {
	for offered, want := range map[int64]string{0: noCount, 1: "a"} {
		n := newGPUNode(t, offered, "a")
		ref := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}
		kept := n.ask(0, 1)
		slot := ledger.Slot{Ref: ref, Node: "n", Policy: ledger.Once, Request: kept.Request, Devices: kept.Devices}
		require.Equal(t, 1, n.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, start).Granted)
		assert.Equal(t, want, n.bind(1, 0, ref))
	}
}

// TestDevicesThatComeLate has the devices of a node be described while pods run: they count, and nobody is told that
// they have some.
func TestDevicesThatComeLate(t *testing.T) {
	n := newGPUNode(t, 4)
	assert.Empty(t, n.bind(1, 0))
	n.describe("a", "b", "c", "d")
	assert.EqualValues(t, 3, n.gpus().Free)
	assert.Equal(t, "a,b", n.bind(2, 0))
	assert.Equal(t, "c", n.bind(0, 1))
	assert.Equal(t, noCount, n.bind(0, 1), "the pod that nobody knows the device of has the last")
	n.describe()
	assert.EqualValues(t, 0, n.gpus().Free, "a claim counts as long as its pod is there")
}

// TestObservedCounts has pods say which devices they were bound with, as after a restart.
func TestObservedCounts(t *testing.T) {
	n := newGPUNode(t, 4, "a", "b", "c", "d")
	honest := n.runs(1, "b")
	assert.Equal(t, []ledger.GivenDevices{{Resource: gpuName, IDs: []string{"b"}}}, honest.Given)
	assert.Empty(t, n.runs(0, "c,d").Given, "it asks for none: it was not given any")
	greedy := n.runs(1, "c,d")
	assert.Equal(t, []string{"c"}, greedy.Given[0].IDs, "it has no more than it asks for")
	assert.Equal(t, "a", n.bind(0, 1))
	assert.Equal(t, "d", n.bind(1, 0))
	assert.Equal(t, noCount, n.bind(1, 0))

	o := ledger.PodObservation{Pod: honest.Pod, Node: "n", Request: honest.Request, ResourceVersion: 2}
	assert.Equal(t, ledger.ObservedNothing, n.ObservePod(o),
		"somebody has removed the annotation: it has the device still")
	o.Devices, o.ResourceVersion = &ledger.DeviceRequest{Given: "d"}, 3
	assert.Equal(t, ledger.ObservedNothing, n.ObservePod(o))
	again, _ := n.Allocation(honest.Pod)
	assert.Equal(t, honest.Given, again.Given)
}

// TestSlotsKeepCounts has a slot keep GPUs by count: a claim does not get what the slot needs, and a pod of the
// slot, whichever way it asks, gets it.
func TestSlotsKeepCounts(t *testing.T) {
	n := newGPUNode(t, 2, "a", "b")
	ref := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}
	request := n.ask(1, 0).Request
	slot := ledger.Slot{Ref: ref, Node: "n", Request: request, Policy: ledger.Aligned}
	require.Equal(t, 1, n.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, start).Granted)
	memory := n.ask(1, 0)
	require.Equal(t, 1, n.Reserve(ledger.NewPlan([]ledger.Placement{*memory}, ledger.AllOrNothing, start.Add(time.Hour)),
		start).Granted)
	assert.Equal(t, noCount, n.bind(0, 1))
	p := n.ask(0, 1)
	p.Slots = []ledger.SlotRef{ref}
	grant, rejection := n.StartBind(p, start)
	require.Nil(t, rejection)
	assert.Equal(t, ref, grant.Slot)
	assert.Equal(t, "a", ids(grant))
	grant, rejection = n.StartBind(memory, start)
	require.Nil(t, rejection)
	assert.Equal(t, "b", ids(grant))
	require.True(t, n.BindFailedKeeping(memory.Pod, "n", start.Add(time.Hour)))
	require.NoError(t, n.CheckInvariants())
	assert.Equal(t, noCount, n.bind(0, 1), "the device is free, and kept by count")
	grant, rejection = n.StartBind(memory, start)
	require.Nil(t, rejection)
	assert.Equal(t, "b", ids(grant))
}

// The object of a device is deleted while a pod has the device: others can have those that are left.
func TestDeviceThatIsGone(t *testing.T) {
	for _, offered := range []int64{0, 2} {
		n := newGPUNode(t, offered, "a", "b")
		require.Equal(t, "a", n.bind(0, 1))
		n.describe("b")
		assert.Equal(t, "b", n.bind(0, 1), "%d offered", offered)
		assert.Contains(t, n.bind(0, 1), "refused", "%d offered", offered)
	}
}

// A pod that says that it has devices has no more of them than it asks for by count, however much it asks for of what
// there are no devices of.
func TestPodsThatSayThatTheyHaveDevices(t *testing.T) {
	for name, hugepages := range map[string][]v1.ResourceName{
		"gpu and hugepages": {"hugepages-2Mi"}, "hugepages of two sizes": {"hugepages-2Mi", "hugepages-1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newGPUNode(t, 4, "a", "b", "c", "d")
			p := n.ask(2-len(hugepages), 0)
			for _, size := range hugepages {
				n.Table().Offer(size)
				p.Request = p.Request.AtLeast(n.Table(), size, 1<<21)
			}
			n.ObservePod(ledger.PodObservation{
				Pod: p.Pod, Node: "n", Request: p.Request, ResourceVersion: 1, Devices: &ledger.DeviceRequest{Given: "a,b,c,d"},
			})
			require.NoError(t, n.CheckInvariants())
			assert.NotContains(t, n.bind(0, 1), "refused", "a claim")
			assert.NotContains(t, n.bind(1, 0), "refused", "by count")
		})
	}
}

// The devices of a pod whose claim asks for another resource by now are kept for no successor, which would be given
// what it does not ask for.
func TestDevicesOfClaimMadeAnewAreNotKept(t *testing.T) {
	n := newGPUNode(t, 2, "a")
	claim := ledger.DeviceClaimRef{Namespace: "ns", Name: "c", UID: "2"}
	asked, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "example.com/fpga", Count: 1})
	require.NoError(t, err)
	p := n.ask(0, 0)
	n.ObservePod(ledger.PodObservation{
		Pod: p.Pod, Node: "n", Request: p.Request, ResourceVersion: 1,
		Devices: &ledger.DeviceRequest{
			Claims: []ledger.DeviceClaimRef{claim}, Requests: []*devices.Request{asked}, Given: "a",
			Recorded: []ledger.GivenDevices{{Claim: claim, Resource: gpuName, IDs: []string{"a"}}},
		},
	})
	assert.Equal(t, noDevices, n.bind(0, 1), "it is in use")
	made, _ := n.RemovePodHolding(p.Pod, 2, ledger.Slot{Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}})
	require.True(t, made)
	assert.Equal(t, "a", n.bind(0, 1))
}
