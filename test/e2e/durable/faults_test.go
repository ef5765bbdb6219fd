//go:build e2e

package durable

import (
	"fmt"
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
	type test struct {
		fault   controlplane.FaultFunc
		granted bool
	}
	// What is held after the answer is clear at once.
	settled := map[string]test{
		"forbidden":                 {onCreates(always, controlplane.Fault{Refuse: http.StatusForbidden}), false},
		"invalid":                   {onCreates(always, controlplane.Fault{Refuse: http.StatusUnprocessableEntity}), false},
		"too many requests, once":   {onCreates(1, controlplane.Fault{Refuse: http.StatusTooManyRequests}), true},
		"an internal error, once":   {onCreates(1, controlplane.Fault{Refuse: http.StatusInternalServerError}), true},
		"an error after the commit": {onCreates(1, controlplane.Fault{DropAnswer: true}), true},
		"every answer is lost":      {onCreates(always, controlplane.Fault{DropAnswer: true}), true},
		"the request is lost":       {onCreates(1, controlplane.Fault{DropRequest: true}), true},
		"slow":                      {onCreates(1, controlplane.Fault{After: time.Second}), true},
	}
	// The capacity is kept until it is known that nothing was written.
	unsettled := map[string]test{
		"every request is lost":               {onCreates(always, controlplane.Fault{DropRequest: true}), false},
		"every request ends with a bad error": {onCreates(always, controlplane.Fault{Refuse: http.StatusServiceUnavailable}), false},
	}
	c := newCluster(t, 2, true)
	gangs := 0
	prefix := func() string {
		gangs++
		return fmt.Sprintf("worker-%d", gangs)
	}
	for name, tc := range settled {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.requireAnswer(prefix(), tc.fault, tc.granted)
			assert.Empty(t, c.Held())
			assert.Empty(t, c.ListReservations())
		})
	}
	// Its first request makes the object again, after it was given back.
	t.Run("so slow that it is sent again", func(t *testing.T) {
		c.in(t).requireAnswer(prefix(), onCreates(1, controlplane.Fault{Before: 8 * time.Second, DropAnswer: true}), true)
	})
	for name, tc := range unsettled {
		t.Run(name, func(t *testing.T) { c.in(t).requireAnswer(prefix(), tc.fault, tc.granted) })
	}
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Held())
		assert.Empty(t, c.ListReservations())
	})
}

// requireAnswer reserves for two pods while writes fail, and gives back what it was granted.
func (c *cluster) requireAnswer(prefix string, fault controlplane.FaultFunc, granted bool) {
	c.T.Helper()
	pods := c.create(prefix, "1", 2)
	c.Proxy.SetFault(fault)
	answer := c.Reserve(gangOn(c.nodes, pods...))
	c.Proxy.SetFault(nil)
	if !granted {
		assert.Contains(c.T, answer.Error, "nothing was reserved")
		assert.Len(c.T, answer.FailedPods, 2)
		assert.Empty(c.T, answer.Reservation)
		return
	}
	require.Empty(c.T, answer.Error)
	objects := c.ListReservations()
	require.Len(c.T, objects, 1)
	assert.Equal(c.T, answer.Reservation, "default/"+objects[0].Name)
	assert.Len(c.T, c.Held(), 2)
	c.giveBack(answer.Reservation)
}

// TestAPIServerAway: while the API server is away nothing durable is granted, and capacity in memory is.
func TestAPIServerAway(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	// Its lease outlasts that.
	c := clusterOn(t, cp, 2, false, "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s")
	pods, others := c.create("worker", "3", 2), c.create("other", "500m", 2)
	require.NoError(t, c.Kill(controlplane.APIServer))
	gang := gangOn(c.nodes, pods...)
	gang.RequestID = "job-1"
	assert.Contains(t, c.Reserve(gang).Error, "nothing was reserved")
	inMemory := gangOn(c.nodes, others...)
	no := false
	inMemory.Durable = &no
	assert.Empty(t, c.Reserve(inMemory).Error)
	require.NoError(t, c.RestartPart(t.Context(), controlplane.APIServer))
	c.Eventually(func(t *assert.CollectT) { // until what was lost is settled
		assert.Empty(t, c.Reserve(gang).Error)
	})
	assert.Len(t, c.ListReservations(), 1)
	assert.Len(t, c.Held(), 4, "of the object and in memory")
}
