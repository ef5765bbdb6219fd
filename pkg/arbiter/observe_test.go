package arbiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/waiting"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// A pod that has got its node is a conflict where the ledger would have refused it, with those that were there before;
// the account of the pods stays as it is.
func TestObserve(t *testing.T) {
	w := newWorld(t)
	bound := func(name, cpu string, version int) *cluster.Pod {
		pod := sized(name, cpu, version)
		pod.Spec.NodeName = "a"
		w.observe(pod)
		return w.info(pod)
	}
	first := bound("first", "3", 3)
	require.Nil(t, w.Observe(first, waiting.Watch, ""), "there is capacity for it")
	second := bound("second", "2", 4)
	before := w.ledger.Snapshot()
	conflict := w.Observe(second, waiting.Bind, "alice")
	require.NotNil(t, conflict)
	assert.Equal(t, second.Ref, conflict.Pod)
	assert.Equal(t, []any{"a", "cpu", int64(2000), int64(1000)},
		[]any{conflict.Node, conflict.Resource, conflict.Requested, conflict.Free})
	require.Len(t, conflict.Holders, 1)
	assert.Equal(t, first.Ref, conflict.Holders[0].Pod)
	assert.Equal(t, before, w.ledger.Snapshot(), "it is only tried")
	list, _ := w.waiting.RefusalsAfter(0)
	require.Len(t, list, 1)
	r := list[0]
	assert.Equal(t, []any{"bind", "alice", "scheduler", "InsufficientResource", true},
		[]any{r.Path, r.Caller, r.Scheduler, r.Reason, r.Observed})
	assert.Empty(t, w.waiting.Waiters(func(string) bool { return true }), "the pod has its node")
}

// A server that observes keeps no scheduler from binding a pod whose request cannot be counted; other schedulers' pods
// are theirs.
func TestObservingBindsWhatCannotBeCounted(t *testing.T) {
	bubble.Each(t, map[string]bool{"for-scheduler": true, "for-other": false}, func(t *testing.T, may bool) {
		p := newPod("p")
		uncountable(p)
		w := newWorld(t, p)
		w.bring(p)
		caller := map[bool]string{true: "for-scheduler", false: "for-other"}[may]
		pod, err := w.MayBind(as(t.Context(), caller), ref(p))
		if may {
			require.NoError(t, err)
			assert.Equal(t, ref(p), pod)
			return
		}
		require.ErrorAs(t, err, new(*identity.DeniedError))
	})
}
