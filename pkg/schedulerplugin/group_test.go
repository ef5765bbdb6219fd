package schedulerplugin

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// trial is a pod group in kube-scheduler's cycle for it: its pods, their states, and the nodes they were given.
type trial struct {
	*fixture
	pods   []*v1.Pod
	states []*fakeState
	nodes  []string
}

// try tries a pod group out, of which each pod is to be on a node, as kube-scheduler does: Filter and Reserve for one
// after another.
func (f *fixture) try(group, cpu string, nodes ...string) *trial {
	f.t.Helper()
	t := &trial{fixture: f, nodes: nodes}
	placement := newPlacement()
	for i, node := range nodes {
		pod := newPod(fmt.Sprint("m", i), cpu)
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		state := newState()
		state.placement = placement
		_, status := f.PreFilter(f.t.Context(), state, pod, nil)
		require.True(f.t, status.IsSuccess(), status.Message())
		require.True(f.t, f.filter(state, pod, node).IsSuccess())
		require.True(f.t, f.Reserve(f.t.Context(), state, pod, node).IsSuccess())
		t.pods, t.states = append(t.pods, pod), append(t.states, state)
	}
	return t
}

// end takes the group's pods off their nodes again, the last one first.
func (t *trial) end() *trial {
	for i := range slices.Backward(t.pods) {
		t.undo(i)
	}
	return t
}

func (t *trial) undo(i int) { t.Unreserve(t.t.Context(), t.states[i], t.pods[i], t.nodes[i]) }

// reserve reserves a pod after the trial.
func (t *trial) reserve(i int) *fwk.Status {
	t.states[i].placement = nil
	return t.Reserve(t.t.Context(), t.states[i], t.pods[i], t.nodes[i])
}

// kept are the nodes where the ledger has capacity for the pods, "-" for none.
func (t *trial) kept() (nodes []string) {
	for _, pod := range t.pods {
		nodes = append(nodes, t.on(pod))
	}
	return nodes
}

// The trial touches nothing. When the first pod of a gang is reserved, all of them are, in one plan.
func TestGangIsReservedInOnePlan(t *testing.T) {
	f := newFixture(t)
	g := f.try("gang", "2", "a", "a", "b").end()
	require.Equal(t, []string{"-", "-", "-"}, g.kept())
	require.True(t, g.reserve(0).IsSuccess())
	assert.Equal(t, []string{"a", "a", "b"}, g.kept(), "before the second is looked at")
	require.True(t, g.reserve(1).IsSuccess())
	require.True(t, g.reserve(2).IsSuccess())
	g.undo(1)
	assert.Equal(t, []string{"a", "-", "b"}, g.kept(), "what fails later for one pod is its own")
}

// Another plugin refuses a member before this one is asked: what the plan has kept for it is given back.
func TestMemberThatIsReservedByNobody(t *testing.T) {
	f := newFixture(t)
	g := f.try("gang", "2", "a", "b").end()
	require.True(t, g.reserve(0).IsSuccess())
	g.states[1].placement = nil
	g.undo(1)
	assert.Equal(t, []string{"a", "-"}, g.kept())
}

// One member has lost its place since the trial: none is reserved, and all are refused together, and tried again.
func TestGangIsRefusedTogether(t *testing.T) {
	f := newFixture(t)
	g := f.try("gang", "3", "a", "b").end()
	for _, pod := range g.pods {
		f.known(pod)
	}
	f.bound(newPod("faster", "2"), "b")
	for i := range g.pods {
		status := g.reserve(i)
		assert.Equal(t, fwk.Unschedulable, status.Code())
		assert.Equal(t, "GlobalReserve: not enough capacity left on the node", status.Message())
		g.undo(i)
	}
	assert.Len(t, f.refusals(), 1, "asked once")
	assert.Equal(t, []string{"-", "-"}, g.kept())

	woken := []string{<-f.handle.activated, <-f.handle.activated}
	assert.ElementsMatch(t, []string{"ns/m0", "ns/m1"}, woken)
	state := newState()
	state.placement = newPlacement()
	_, status := f.PreFilter(t.Context(), state, g.pods[0], nil)
	assert.True(t, status.IsSuccess())
}

// A pod that has no place after all, because another plugin has refused it there, is not in the plan.
func TestPlanIsOfPodsThatHaveAPlace(t *testing.T) {
	f := newFixture(t)
	placement := newPlacement()
	g := f.try("gang", "2", "a", "a")
	g.undo(1)
	last := newPod("last", "2")
	state := newState()
	state.placement = placement
	g.states[0].placement.Write(groupKey, cycleOf(g.states[0]).group)
	state.placement = g.states[0].placement
	_, status := f.PreFilter(t.Context(), state, last, nil)
	require.True(t, status.IsSuccess())
	require.True(t, f.filter(state, last, "a").IsSuccess(), "its place is free again")
	require.True(t, f.Reserve(t.Context(), state, last, "a").IsSuccess())
	f.Unreserve(t.Context(), state, last, "a")
	g.undo(0)
	require.True(t, g.reserve(0).IsSuccess())
	assert.Equal(t, []string{"a", "-"}, g.kept())
	assert.Equal(t, "a", f.on(last))
}

// A group that is tried out in several parts of the cluster is reserved in the one that was chosen.
func TestPlanIsThatOfThePlacementChosen(t *testing.T) {
	f := newFixture(t)
	chosen := f.try("gang", "2", "a", "a").end()
	f.try("gang", "2", "b", "b").end()
	require.True(t, chosen.reserve(0).IsSuccess())
	assert.Equal(t, []string{"a", "a"}, chosen.kept())
}

// Pods of a group that is no gang are good for something alone.
func TestBasicGroupIsReservedPodByPod(t *testing.T) {
	f := newFixture(t)
	g := f.try("basic", "3", "a", "b").end()
	f.bound(newPod("faster", "2"), "b")
	assert.True(t, g.reserve(0).IsSuccess())
	assert.False(t, g.reserve(1).IsSuccess())
	assert.Equal(t, []string{"a", "-"}, g.kept())
}
