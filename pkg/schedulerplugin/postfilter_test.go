package schedulerplugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// fakeStatuses are what nodes were refused for, by their names.
type fakeStatuses map[string]*fwk.Status

func (s fakeStatuses) Get(node string) *fwk.Status { return s[node] }

func (s fakeStatuses) NodesForStatusCode(_ fwk.NodeInfoLister, code fwk.Code) (nodes []fwk.NodeInfo, err error) {
	for name, status := range s {
		if status.Code() == code {
			nodes = append(nodes, nodeInfo(name))
		}
	}
	return nodes, nil
}

// Where no node is left, it is reported once which the account has refused; those that others have refused are not.
func TestPostFilterTellsOfRefusals(t *testing.T) {
	f := newFixture(t)
	state, large := newState(), newPod("large", "3")
	for _, node := range []string{"a", "b"} {
		f.bound(newPod("on-"+node, "2"), node)
	}
	_, status := f.PreFilter(t.Context(), state, large, nil)
	require.True(t, status.IsSuccess(), status)
	statuses := fakeStatuses{"c": fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "tainted").WithPlugin("TaintToleration")}
	for _, node := range []string{"a", "b"} {
		statuses[node] = f.Filter(t.Context(), state, large, nodeInfo(node)).WithPlugin(Name)
		require.False(t, statuses[node].IsSuccess())
	}
	result, status := f.PostFilter(t.Context(), state, large, statuses)
	assert.Nil(t, result)
	assert.Equal(t, fwk.Unschedulable, status.Code())
	assert.Empty(t, status.Reasons(), "the message of the pod stays as it is")
	require.Len(t, f.refusals(), 1)
	assert.Equal(t, "large", f.refusals()[0].Rejection.Pod.Name)
	assert.Equal(t, []requeue.Count{{Reason: ledger.InsufficientResource, Nodes: 2}}, f.refusals()[0].Reasons)

	state, small := newState(), newPod("small", "1")
	_, status = f.PreFilter(t.Context(), state, small, nil)
	require.True(t, status.IsSuccess(), status)
	require.True(t, f.Filter(t.Context(), state, small, nodeInfo("a")).IsSuccess())
	_, status = f.PostFilter(t.Context(), state, small, fakeStatuses{"a": statuses["c"]})
	assert.Equal(t, fwk.Unschedulable, status.Code())
	assert.Len(t, f.refusals(), 1)
}
