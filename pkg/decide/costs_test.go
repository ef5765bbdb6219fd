//go:build costs && unix

package decide

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

// A pod is bound by an API server that answers at once, and goes again.
func TestCosts(t *testing.T) {
	w := newWorld(t)
	// One name is given to pods in turns, of which more come than are remembered when they are gone.
	pods, records := make([]*v1.Pod, 64), make([]*cluster.Pod, 64)
	for i := range pods {
		pods[i] = newPod("p")
		pods[i].UID, pods[i].ResourceVersion = types.UID(fmt.Sprintf("uid-%d", i)), "1"
		records[i] = cluster.Reader{Table: w.ledger.Table()}.Compact(pods[i])
	}
	turn := 0
	costs.Check(t, "bind", func() {
		pod := pods[turn%len(pods)]
		w.store.Put(records[turn%len(pods)])
		turn++
		w.api.change(func() { pod.Spec.NodeName, pod.Annotations, pod.ResourceVersion = "", nil, "1" })
		w.api.put(pod)
		require.NoError(t, w.bindPod(pod, "a"))
		w.ledger.RemovePod(ref(pod), 0)
	})
	require.Zero(t, w.ledger.Stats().Allocations[ledger.Bound])
	costsOfGangs(t)
}

// costsOfGangs binds the first member of a gang of 1,000 on 5,000 nodes, where slots are made for all others, and takes
// all back.
func costsOfGangs(t *testing.T) {
	w := newGangWorld(t, 5000, 4)
	pods := w.gang("a", 1000, 1000, nil)
	first := w.o.Question.For(pods[0], "n0")
	costs.Check(t, "start a gang of 1000", func() {
		_, err := w.startBind(pods[0], &first, nowhere)
		require.NoError(t, err)
		w.undo(pods[:1])
	})
	require.Zero(t, w.kept())
}
