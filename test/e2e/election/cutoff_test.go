package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server that decides is cut off from the API server, and from nobody else: those who ask it still reach it. It
// stops deciding before another one starts.
func TestCutOffFromTheAPIServer(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	first := c.start("first", proxy)
	c.awaitLeader(first)
	second := c.start("second", nil)
	c.CreatePod("pod", nobody, "1")
	before, after := c.follow(first), c.follow(second)
	<-before.first
	cut := time.Now()
	require.NoError(t, proxy.Stop())
	<-after.first
	c.Eventually(func(t *assert.CollectT) { assert.False(t, first.Running(), "it ends itself") })
	last, next := before.stop(), after.started
	assert.True(t, last.Before(next), "the last decision of one at %s, the first of the other at %s", last, next)
	assert.Greater(t, last.Sub(cut), time.Second, "it need not stop at once")
	t.Logf("cut off: decides for %s more, and the next one %s later", last.Sub(cut).Round(time.Millisecond), next.Sub(last).Round(time.Millisecond))
	after.stop()
	c.RequireNeverOvercommitted()
}

// decisions are when a server decides that is asked all the time.
type decisions struct {
	// first is closed when it has decided once, which it was asked for at started.
	first   chan struct{}
	started time.Time
	// stop ends the asking and returns when it had last decided.
	stop func() time.Time
}

// follow asks a server where a pod could go until it is stopped.
func (c *cluster) follow(server *testbed.Server) *decisions {
	c.T.Helper()
	pod := c.Pod("pod")
	d := &decisions{first: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.T.Context())
	c.T.Cleanup(cancel)
	last := make(chan time.Time, 1)
	go func() {
		var decided time.Time
		for ; ctx.Err() == nil; <-time.After(testbed.Poll / 4) {
			asked := time.Now()
			_, err := server.Filter(ctx, pod, c.nodes...)
			if err != nil {
				continue
			}
			if decided.IsZero() {
				d.started = asked
				close(d.first)
			}
			decided = time.Now()
		}
		last <- decided
	}()
	d.stop = func() time.Time {
		cancel()
		return <-last
	}
	return d
}
