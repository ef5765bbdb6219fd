package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// see has a pod be seen bound that was asked for, given what it asks for by DRA or not.
func (n *gpuNode) see(p *ledger.Placement, byDRA bool) {
	n.t.Helper()
	request := *p.Request
	if column, _ := n.Table().Lookup(gpuName); byDRA {
		request.ByDRA = []resources.Column{column}
	}
	n.ObservePod(ledger.PodObservation{Pod: p.Pod, Node: "n", Request: &request, ResourceVersion: 1})
	require.NoError(n.t, n.CheckInvariants())
}

// A node that offers none of a resource by count leaves it to DRA where DRA has devices for it there, and nowhere else.
func TestLeftToDRA(t *testing.T) {
	n := newGPUNode(t, 0)
	require.Equal(t, noCount, n.bind(2, 0), "DRA has none on this node, whatever classes map")
	since := n.Revision()
	n.observe(0, true)
	assert.Equal(t, since+1, n.Revision(), "which wakes who waits")
	n.observe(0, true)
	assert.Equal(t, since+1, n.Revision(), "no news")
	assert.Empty(t, n.bind(2, 0), "granted, and given no device")
	assert.Empty(t, n.bind(8, 0))
	assert.Zero(t, n.gpus(), "it is not counted there")
	assert.Zero(t, n.Stats().OvercommittedNodes)
	n.observe(11, true)
	assert.EqualValues(t, 1, n.gpus().Free, "what pods have by DRA counts as kube-scheduler counts it")
	assert.Equal(t, noCount, n.bind(2, 0))
	n.observe(0, false)
	assert.Equal(t, noCount, n.bind(1, 0))
}

// While pods have some of a resource by count, its device plugin is away, and DRA's devices may be the same ones.
func TestNotLeftToDRAWhilePodsUseItByCount(t *testing.T) {
	n := newGPUNode(t, 8)
	p := n.ask(8, 0)
	n.see(p, false)
	n.observe(0, true)
	assert.Equal(t, noCount, n.bind(4, 0))
	assert.Equal(t, 1, n.Stats().OvercommittedNodes)
	n.RemovePod(p.Pod, 2)
	assert.Empty(t, n.bind(4, 0))
}

// A pod that is being bound, or was bound by us, may be one whose status does not say yet what DRA gave it.
func TestLeftToDRAUntilPodsAreSeen(t *testing.T) {
	n := newGPUNode(t, 0)
	n.observe(0, true)
	bound, next := n.ask(2, 0), n.ask(2, 0)
	_, rejection := n.StartBind(bound, start)
	require.Nil(t, rejection)
	assert.Equal(t, ledger.Fits, n.AppendFit(nil, next, []string{"n"})[0].Reason)
	require.True(t, n.Confirm(bound.Pod, "n"))
	assert.Equal(t, ledger.Fits, n.AppendFit(nil, next, []string{"n"})[0].Reason)
	n.see(bound, false)
	assert.Equal(t, ledger.InsufficientResource, n.AppendFit(nil, next, []string{"n"})[0].Reason)
	n.see(bound, true)
	assert.Equal(t, ledger.Fits, n.AppendFit(nil, next, []string{"n"})[0].Reason)
}

// A driver that restarts takes its slices away: what its pods have is no overcommit, and nobody else gets any.
func TestDriverOfDRAIsAway(t *testing.T) {
	n := newGPUNode(t, 0)
	n.observe(0, true)
	p := n.ask(2, 0)
	n.see(p, true)
	n.observe(0, false)
	assert.Zero(t, n.Stats().OvercommittedNodes)
	assert.Equal(t, noCount, n.bind(1, 0))
	require.NoError(t, n.CheckInvariants())
	n.RemovePod(p.Pod, 2)
	require.NoError(t, n.CheckInvariants())
	assert.Equal(t, noCount, n.bind(1, 0))
}

// Nobody has the devices of pods to come: what DRA gives is reserved for none, alone or in a gang.
func TestNothingIsKeptOfWhatDRAGives(t *testing.T) {
	n := newGPUNode(t, 0)
	n.observe(0, true)
	p := n.ask(2, 0)
	slot := p.Slot(time.Time{})
	slot.Ref = ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}
	slot.Pod = ledger.PodRef{}
	result := n.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, start)
	require.Len(t, result.Rejections, 1)
	assert.Equal(t, `node "n" has too little nvidia.com/gpu for slot ns/r/s: requested 2, 0 free; the node leaves it to `+
		`DRA, which keeps none for later; the status of a pod says what DRA gave it`, result.Rejections[0].Message())

	keep := *p
	keep.NoDRA = true
	assert.Zero(t, n.Reserve(ledger.NewPlan([]ledger.Placement{keep}, ledger.AllOrNothing, time.Time{}), start).Granted)
	survey := n.Survey()
	anywhere := func(string) bool { return true }
	assert.Empty(t, survey.BestFit(&keep, anywhere))
	column, _ := n.Table().Lookup(gpuName)
	assert.True(t, survey.LeftToDRA("n", column))
	assert.Contains(t, survey.Largest(&keep, anywhere), ledger.Lack{Resource: gpuName, Requested: 2})
	n.Rooms(&keep, func(string, int64) bool { assert.Fail(t, "there is no room"); return false })

	member := n.ask(2, 0)
	member.NoDRA = true
	other := member.Slot(time.Time{})
	other.Movable = true
	_, rejection := n.StartBindWith(p, &ledger.Exchange{
		Keep: []ledger.Choice{{Slots: []ledger.Slot{other}, Nodes: []string{"n"}}},
	}, start)
	require.NotNil(t, rejection)
	assert.Equal(t, ledger.GangUnplaced, rejection.Reason)
	assert.Contains(t, rejection.Message(), "what nodes leave to DRA, nvidia.com/gpu, is kept for no pod")

	require.Equal(t, 1, n.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, time.Time{}), start).Granted,
		"a scheduler that binds it next")
	_, rejection = n.StartBind(p, start)
	require.Nil(t, rejection)
	require.NoError(t, n.CheckInvariants())
}

// A pod is bound once its status says what DRA gave it: who schedules without DRA would have it run without devices,
// and be taken for one that has some by count.
func TestBoundOnceDRAHasGiven(t *testing.T) {
	n := newGPUNode(t, 0)
	n.observe(0, true)
	p := n.ask(2, 0)
	p.NoDRA = true
	require.True(t, n.LeavesToDRA("n", p.Request))
	_, rejection := n.StartBind(p, start)
	require.NotNil(t, rejection)
	assert.Equal(t, ledger.InsufficientResource, rejection.Reason)
	p.NoDRA = false
	require.Equal(t, 1, n.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, time.Time{}), start).Granted,
		"its scheduler has yet to allocate")
	p.NoDRA = true
	_, rejection = n.StartBind(p, start)
	require.NotNil(t, rejection, "nor in the place of what is kept for it")

	given := *p.Request
	column, _ := n.Table().Lookup(gpuName)
	given.ByDRA = []resources.Column{column}
	p.Request = &given
	_, rejection = n.StartBind(p, start)
	require.Nil(t, rejection)
	require.NoError(t, n.CheckInvariants())
}

// What is kept of a deleted pod are not the devices that DRA gave it: others have them.
func TestDeletedPodLeavesNothingOfDRA(t *testing.T) {
	for _, seen := range []bool{true, false} {
		n := newGPUNode(t, 0)
		n.observe(0, true)
		p := n.ask(2, 0)
		if seen {
			n.see(p, true)
		} else {
			_, rejection := n.StartBind(p, start)
			require.Nil(t, rejection)
			require.True(t, n.Confirm(p.Pod, "n"))
		}
		ref := ledger.SlotRef{Namespace: "ns", Name: "kept", Slot: "s"}
		made, _ := n.RemovePodHolding(p.Pod, 2, ledger.Slot{Ref: ref, Policy: ledger.Once})
		require.True(t, made)
		require.NoError(t, n.CheckInvariants())
		successor := n.ask(2, 0)
		successor.Slots = []ledger.SlotRef{ref}
		assert.Equal(t, ledger.Fits, n.AppendFit(nil, successor, []string{"n"})[0].Reason)
		n.observe(0, false)
		_, rejection := n.StartBind(successor, start)
		require.NotNil(t, rejection, "the driver is away")
		assert.Equal(t, ledger.InsufficientResource, rejection.Reason)
		assert.Zero(t, n.Stats().OvercommittedNodes)
	}
}

// What a node leaves to DRA is not what a pod lacks there, nor what a new node would have to offer.
func TestAdviceOnWhatIsLeftToDRA(t *testing.T) {
	n := newGPUNode(t, 0)
	n.observe(0, true)
	p := n.ask(2, 0)
	column, _ := n.Table().Lookup(gpuName)
	later := *p
	later.NoDRA = true
	assert.False(t, n.FitsEmpty(&later), "nothing of it is kept here")
	assert.True(t, n.FitsEmpty(p), "another node is no help that this one would not be")
	assert.True(t, n.AppendUsage(nil, []string{"n"}, []resources.Column{column})[0].Elsewhere)
	all := func(string) bool { return true }
	assert.Equal(t, []ledger.Lack{{Resource: "pods", Requested: 1, Largest: 100, Node: "n"}},
		n.Survey().Largest(p, all))
}
