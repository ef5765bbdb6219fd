package rest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Where no node has a free device for a pod, the closest is one that has such a device at all.
func TestClosestNodeHasTheDevice(t *testing.T) {
	f := newFixture(t, Limits{})
	f.Question.Devices = anyGPU{t}.Devices
	for node, model := range map[string]string{"node-2": "P100", "node-3": "K80"} {
		f.ledger.ObserveDevices(node, []devices.Device{{Name: node, Resource: gpu, ID: node, Properties: map[string]string{"model": model}}})
	}
	closest := func(name, claim string) string {
		f.see(claiming(aPod(name, "1", "1Gi"), claim))
		var answer reserver.ExplainAnswer
		f.get("/v1/explain?namespace=team-a&pod="+name, &answer)
		require.Zero(t, answer.FitCount)
		require.NotNil(t, answer.Closest)
		return answer.Closest.Node
	}
	info, err := cluster.Reader{Table: f.ledger.Table()}.NewPod(claiming(aPod("first", "1", "1Gi"), "k80-first"))
	require.NoError(t, err)
	p := info.Placement("node-3")
	p.Devices = anyGPU{t}.Devices(info)
	_, refused := f.ledger.StartBind(&p, time.Now())
	require.Nil(t, refused)
	assert.Equal(t, "node-3", closest("second", "k80-second"), "it is in use")

	f.ledger.RemovePod(ledger.PodRef{Namespace: "team-a", Name: "first", UID: p.Pod.UID}, 0)
	f.ledger.ObserveDevices("node-3", nil)
	assert.Equal(t, "node-2", closest("third", "k80-third"), "a device of the resource, though of another kind")
}
