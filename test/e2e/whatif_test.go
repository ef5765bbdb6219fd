//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

func (c *cluster) whatIf(request *reserver.WhatIfRequest) (answer reserver.WhatIfAnswer) {
	c.T.Helper()
	require.NoError(c.T, c.Ledger.Post(c.T.Context(), testbed.WhatIfPath, request, &answer))
	return answer
}

// TestWhatIf asks what a reservation would be answered if pods were gone, and then deletes them: the
// answer comes true. Asking changes nothing.
func TestWhatIf(t *testing.T) {
	c := newServedCluster(t, 2)
	victims := c.Create(testbed.NewPods(2, "victim", nobody, "3")...)
	for i, victim := range victims {
		require.Empty(t, c.Bind(victim, nodeOf(i)))
	}
	c.requireAgreement()
	workers := c.Create(testbed.NewPods(2, "worker", nobody, "3")...)
	before := c.Allocations()
	question := &reserver.WhatIfRequest{Request: reserver.Request{SchedulerName: nobody, Pods: workers}}

	refused := c.whatIf(question)
	require.NotEmpty(t, refused.Error)
	require.Equal(t, []string{"worker-0", "worker-1"}, refused.FailedPods)
	require.Equal(t, "cpu", refused.Rejections[0].Resource)

	question.Without = []reserver.GonePod{{Namespace: testbed.Namespace, Name: "victim-1"}}
	half := c.whatIf(question)
	require.Len(t, half.FailedPods, 1, "one node has capacity for one of them")

	question.Without = append(question.Without, reserver.GonePod{UID: string(victims[0].UID)})
	fits := c.whatIf(question)
	require.Empty(t, fits.Error)
	require.Len(t, fits.Placements, 2)
	require.Equal(t, before, c.Allocations(), "asking changed the ledger")

	var nodes []string
	for _, placement := range fits.Placements {
		nodes = append(nodes, placement.Node)
	}
	require.NotEmpty(t, c.Reserve(gangOf(workers, nodes...)).Error, "the pods are still there")
	for _, victim := range victims {
		c.Delete(victim.Name)
	}
	c.requireAgreement()
	require.True(t, c.Reserve(gangOf(workers, nodes...)).Granted(), "as it was answered")
	require.True(t, c.Unreserve(gangOf(workers, nodes...)).Granted())
	c.RequireNeverOvercommitted()
}
