package durable

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGroupSurvivesAKill reserves a group, kills the server, and lets the group's own scheduler bind
// it after the restart, while others want the same room all the time.
func TestGroupSurvivesAKill(t *testing.T) {
	c, _ := newCluster(t, 4, false)
	workers, rivals := c.create("worker", "3", 4), c.create("rival", "2", 4)
	group := groupOn(c.nodes, workers...)
	group.RequestID = "job-1"
	granted := c.reserve(group)
	require.Empty(t, granted.Error)
	require.NotEmpty(t, granted.Reservation)
	before := c.held()
	require.Len(t, before, 4)

	c.server.Crash(c.t)
	assert.Equal(t, before, c.held(), "an acknowledged reservation is not lost")
	c.requireRefused(rivals[0].Name)
	again := c.reserve(group)
	assert.Equal(t, granted.Reservation, again.Reservation)
	assert.Equal(t, granted.ExpiresAt, again.ExpiresAt)
	assert.Empty(t, again.FailedPods)
	require.Len(t, c.objects(), 1)
	refused := c.reserve(groupOn(c.nodes, rivals...))
	assert.Len(t, refused.FailedPods, 4)
	assert.Contains(t, refused.Error, "reservation "+granted.Reservation+"/worker-")

	for i, pod := range workers {
		c.bind(pod, c.nodes[i])
		if i == 1 {
			c.server.Crash(c.t) // in the middle of it
		}
	}
	c.eventually(soon, func(t *assert.CollectT) {
		assert.Empty(t, c.held())
		assert.Empty(t, c.objects(), "the bindings are the record")
	})
	for _, node := range c.nodes {
		cpu := c.cpu(node)
		assert.Equal(t, [2]int64{3000, 0}, [2]int64{cpu.Bound, cpu.Reserved}, "nothing is counted twice")
	}
	assert.Equal(t, []string{}, c.reserve(group).FailedPods, "all of them are where they are to be")
	c.requireNeverOvercommitted()
}

// requireRefused fails unless filter refuses a pod every node.
func (c *cluster) requireRefused(pod string) {
	c.t.Helper()
	rival := newPod(pod, "2")
	rival.UID = "of-a-pod-that-is-not-there"
	var answer extenderv1.ExtenderFilterResult
	c.ask(http.MethodPost, testbed.FilterPath, &extenderv1.ExtenderArgs{Pod: rival, NodeNames: &c.nodes}, &answer)
	require.NotNil(c.t, answer.NodeNames)
	assert.Empty(c.t, *answer.NodeNames)
}

// TestKilledBeforeTheWrite kills the server while a reservation is in the ledger and not written yet.
func TestKilledBeforeTheWrite(t *testing.T) {
	c, proxy := newCluster(t, 2, true)
	reached := make(chan struct{}, 1)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !isCreate(r) {
			return controlplane.Fault{}
		}
		select {
		case reached <- struct{}{}:
		default:
		}
		return controlplane.Fault{Before: soon, DropRequest: true}
	})
	answered := make(chan error, 1)
	pods := c.create("worker", "3", 2)
	go func() {
		answered <- c.server.Post(t.Context(), testbed.ReservePath, groupOn(c.nodes, pods...), &struct{}{})
	}()
	<-reached
	assert.Len(t, c.held(), 2)
	require.NoError(t, c.server.Kill())
	require.Error(t, <-answered, "nobody was told anything")
	proxy.SetFault(nil)
	require.NoError(t, c.server.Start(t.Context()))
	assert.Empty(t, c.held())
	assert.Empty(t, c.objects())
	assert.Empty(t, c.reserve(groupOn(c.nodes, c.create("rival", "3", 2)...)).Error)
}

func isCreate(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/reservations")
}

// TestGivingBack takes a group back in parts and as a whole, over a restart.
func TestGivingBack(t *testing.T) {
	c, _ := newCluster(t, 4, false)
	workers := c.create("worker", "3", 4)
	group := groupOn(c.nodes, workers...)
	group.Name = "job"
	require.Equal(t, "default/job", c.reserve(group).Reservation)

	part := c.unreserve(&request{SchedulerName: scheduler, Pods: workers[:1]})
	require.Empty(t, part.Error)
	assert.Zero(t, c.cpu(c.nodes[0]).Reserved)
	theirs := c.unreserve(&request{SchedulerName: "theirs", Pods: workers[1:2]})
	assert.Contains(t, theirs.Error, "belongs to another scheduler")
	c.server.Crash(c.t)
	assert.Len(t, c.held(), 3, "what was given back stays so over a restart")
	states := map[v1alpha1.SlotState]int{}
	for _, slot := range c.objects()[0].Status.Slots {
		states[slot.State]++
	}
	assert.Equal(t, map[v1alpha1.SlotState]int{v1alpha1.SlotReserved: 3, v1alpha1.SlotReleased: 1}, states)

	c.bind(workers[1], c.nodes[1])
	theirs = c.unreserve(&request{SchedulerName: "theirs", Reservation: "default/job"})
	assert.Contains(t, theirs.Error, `belongs to scheduler "batch-scheduler"`)
	require.Empty(t, c.unreserve(&request{SchedulerName: scheduler, Reservation: "default/job"}).Error)
	assert.Empty(t, c.objects())
	c.eventually(soon, func(t *assert.CollectT) {
		assert.Empty(t, c.held())
		assert.EqualValues(t, 3000, c.cpu(c.nodes[1]).Bound)
		assert.Zero(t, c.cpu(c.nodes[2]).Reserved)
	})
	assert.Empty(t, c.unreserve(&request{SchedulerName: scheduler, Reservation: "default/job"}).Error, "a repeat is a success")

	group.Pods, group.Nodes = workers[2:], c.nodes[2:]
	assert.Equal(t, "default/job", c.reserve(group).Reservation, "the name is free again")
	assert.Len(t, c.held(), 2)
	assert.Equal(t, convert.MadeByReserve, c.objects()[0].Labels[convert.MadeByLabel])
}
