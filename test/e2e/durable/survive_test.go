package durable

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGangSurvivesAKill reserves a gang, kills the server, and lets the gang's own scheduler bind
// it after the restart, while others want the same capacity all the time.
func TestGangSurvivesAKill(t *testing.T) {
	c := newCluster(t, 4, false)
	workers, rivals := c.create("worker", "3", 4), c.create("rival", "2", 4)
	gang := gangOn(c.nodes, workers...)
	gang.RequestID = "job-1"
	granted := c.Reserve(gang)
	require.Empty(t, granted.Error)
	require.NotEmpty(t, granted.Reservation)
	before := c.Held()
	require.Len(t, before, 4)

	c.Server.Crash(c.T)
	assert.Equal(t, before, c.Held(), "an acknowledged reservation is not lost")
	c.requireRefused(rivals[0].Name)
	again := c.Reserve(gang)
	assert.Equal(t, granted.Reservation, again.Reservation)
	assert.Equal(t, granted.ExpiresAt, again.ExpiresAt)
	assert.Empty(t, again.FailedPods)
	require.Len(t, c.ListReservations(), 1)
	refused := c.Reserve(gangOn(c.nodes, rivals...))
	assert.Len(t, refused.FailedPods, 4)
	assert.Contains(t, refused.Error, "reservation "+granted.Reservation+"/worker-")

	for i, pod := range workers {
		require.NoError(t, c.BindDirectly(pod.Name, c.nodes[i]))
		if i == 1 {
			c.Server.Crash(c.T) // in the middle of it
		}
	}
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Held())
		assert.Empty(t, c.ListReservations(), "the bindings are the record")
	})
	for _, node := range c.nodes {
		cpu := c.CPU(node)
		assert.Equal(t, [2]int64{3000, 0}, [2]int64{cpu.Bound, cpu.Reserved}, "nothing is counted twice")
	}
	assert.Equal(t, []string{}, c.Reserve(gang).FailedPods, "all of them are where they are to be")
	c.RequireNeverOvercommitted()
}

// requireRefused fails unless filter refuses a pod every node.
func (c *cluster) requireRefused(pod string) {
	c.T.Helper()
	rival := testbed.NewPod(pod, scheduler, "2")
	rival.UID = "of-a-pod-that-is-not-there"
	assert.Len(c.T, c.Filter(rival, c.nodes...), len(c.nodes))
}

// TestKilledBeforeTheWrite kills the server while a reservation is in the ledger and not written yet.
func TestKilledBeforeTheWrite(t *testing.T) {
	c := newCluster(t, 2, true)
	reached := make(chan struct{}, 1)
	c.Proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !isCreate(r) {
			return controlplane.Fault{}
		}
		select {
		case reached <- struct{}{}:
		default:
		}
		return controlplane.Fault{Before: testbed.Soon, DropRequest: true}
	})
	answered := make(chan error, 1)
	pods := c.create("worker", "3", 2)
	go func() {
		answered <- c.Server.Post(t.Context(), testbed.ReservePath, gangOn(c.nodes, pods...), &struct{}{})
	}()
	<-reached
	assert.Len(t, c.Held(), 2)
	require.NoError(t, c.Server.Kill())
	require.Error(t, <-answered, "nobody was told anything")
	c.Proxy.SetFault(nil)
	require.NoError(t, c.Server.Start(t.Context()))
	assert.Empty(t, c.Held())
	assert.Empty(t, c.ListReservations())
	assert.Empty(t, c.Reserve(gangOn(c.nodes, c.create("rival", "3", 2)...)).Error)
}

func isCreate(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/reservations")
}

// TestGivingBack takes a gang back in parts and as a whole, over a restart.
func TestGivingBack(t *testing.T) {
	c := newCluster(t, 4, false)
	workers := c.create("worker", "3", 4)
	gang := gangOn(c.nodes, workers...)
	gang.Name = "job"
	require.Equal(t, "default/job", c.Reserve(gang).Reservation)

	part := c.Unreserve(&reserver.Request{SchedulerName: scheduler, Pods: workers[:1]})
	require.Empty(t, part.Error)
	assert.Zero(t, c.CPU(c.nodes[0]).Reserved)
	theirs := c.Unreserve(&reserver.Request{SchedulerName: "theirs", Pods: workers[1:2]})
	assert.Contains(t, theirs.Error, "belongs to another scheduler")
	c.Server.Crash(c.T)
	assert.Len(t, c.Held(), 3, "what was given back stays so over a restart")
	c.Eventually(func(t *assert.CollectT) {
		states := map[v1alpha1.SlotState]int{}
		for _, slot := range c.ListReservations()[0].Status.Slots {
			states[slot.State]++
		}
		assert.Equal(t, map[v1alpha1.SlotState]int{v1alpha1.SlotReserved: 3, v1alpha1.SlotReleased: 1}, states)
	})

	require.NoError(t, c.BindDirectly(workers[1].Name, c.nodes[1]))
	theirs = c.Unreserve(&reserver.Request{SchedulerName: "theirs", Reservation: "default/job"})
	assert.Contains(t, theirs.Error, `belongs to scheduler "batch-scheduler"`)
	c.giveBack("default/job")
	assert.Empty(t, c.ListReservations())
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Held())
		assert.EqualValues(t, 3000, c.CPU(c.nodes[1]).Bound)
		assert.Zero(t, c.CPU(c.nodes[2]).Reserved)
	})
	assert.Empty(t, c.Unreserve(&reserver.Request{SchedulerName: scheduler, Reservation: "default/job"}).Error, "a repeat is a success")

	gang.Pods, gang.Nodes = workers[2:], c.nodes[2:]
	assert.Equal(t, "default/job", c.Reserve(gang).Reservation, "the name is free again")
	assert.Len(t, c.Held(), 2)
	assert.Equal(t, convert.MadeByReserve, c.ListReservations()[0].Labels[convert.MadeByLabel])
}
