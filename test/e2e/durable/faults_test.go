package durable

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// onCreates does something to the first creates of Reservations.
func onCreates(times int64, fault controlplane.Fault) controlplane.FaultFunc {
	var seen atomic.Int64
	return func(r *http.Request) controlplane.Fault {
		if isCreate(r) && seen.Add(1) <= times {
			return fault
		}
		return controlplane.Fault{}
	}
}

const always = 1 << 40

// TestWritesThatFail: whatever becomes of the write, the answer says what is held, and only that stays.
func TestWritesThatFail(t *testing.T) {
	tests := map[string]struct {
		fault   controlplane.FaultFunc
		granted bool
		within  time.Duration // until nothing is left of one that is not granted
	}{
		"forbidden":                           {onCreates(always, controlplane.Fault{Refuse: http.StatusForbidden}), false, 0},
		"invalid":                             {onCreates(always, controlplane.Fault{Refuse: http.StatusUnprocessableEntity}), false, 0},
		"too many requests, once":             {onCreates(1, controlplane.Fault{Refuse: http.StatusTooManyRequests}), true, 0},
		"an internal error, once":             {onCreates(1, controlplane.Fault{Refuse: http.StatusInternalServerError}), true, 0},
		"an error after the commit":           {onCreates(1, controlplane.Fault{DropAnswer: true}), true, 0},
		"every answer is lost":                {onCreates(always, controlplane.Fault{DropAnswer: true}), true, 0},
		"the request is lost":                 {onCreates(1, controlplane.Fault{DropRequest: true}), true, 0},
		"slow":                                {onCreates(1, controlplane.Fault{After: time.Second}), true, 0},
		"so slow that it is sent again":       {onCreates(1, controlplane.Fault{Before: 8 * time.Second, DropAnswer: true}), true, 0},
		"every request is lost":               {onCreates(always, controlplane.Fault{DropRequest: true}), false, 2 * soon},
		"every request ends with a bad error": {onCreates(always, controlplane.Fault{Refuse: http.StatusServiceUnavailable}), false, 2 * soon},
	}
	c, proxy := newCluster(t, 2, true)
	pods := c.create("worker", "3", 2)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			proxy.SetFault(tc.fault)
			answer := c.reserve(groupOn(c.nodes, pods...))
			proxy.SetFault(nil)
			if tc.granted {
				require.Empty(t, answer.Error)
				objects := c.objects()
				require.Len(t, objects, 1)
				assert.Equal(t, answer.Reservation, "default/"+objects[0].Name)
				assert.Len(t, c.held(), 2)
				require.Empty(t, c.unreserve(&request{SchedulerName: scheduler, Reservation: answer.Reservation}).Error)
			} else {
				assert.Contains(t, answer.Error, "nothing was reserved")
				assert.Len(t, answer.FailedPods, 2)
				assert.Empty(t, answer.Reservation)
			}
			left := func(t assert.TestingT) {
				assert.Empty(t, c.held())
				assert.Empty(t, c.objects())
			}
			if tc.within == 0 {
				left(t)
			} else {
				c.eventually(tc.within, func(t *assert.CollectT) { left(t) })
			}
		})
	}
}

// TestAPIServerAway: while the API server is away nothing durable is granted, and room in memory is.
func TestAPIServerAway(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c, _ := clusterOn(t, cp, 2, false)
	pods, others := c.create("worker", "3", 2), c.create("other", "500m", 2)
	require.NoError(t, c.Kill(controlplane.APIServer))
	group := groupOn(c.nodes, pods...)
	group.RequestID = "job-1"
	assert.Contains(t, c.reserve(group).Error, "nothing was reserved")
	inMemory := groupOn(c.nodes, others...)
	no := false
	inMemory.Durable = &no
	assert.Empty(t, c.reserve(inMemory).Error)
	require.NoError(t, c.RestartPart(t.Context(), controlplane.APIServer))
	c.eventually(2*soon, func(t *assert.CollectT) { // until what was lost is settled
		assert.Empty(t, c.reserve(group).Error)
	})
	assert.Len(t, c.objects(), 1)
	assert.Len(t, c.held(), 2)
}
