package election

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	kills  = 12
	rounds = 2
	// between is for how long each server decides before it is killed.
	between = 500 * time.Millisecond
	// longLease is how long the Lease of a stopped server would last here, if it did not give it up. It is still asked for
	// stopDelay, in which who asks has learnt that it stops, even on a machine that has other things to do.
	longLease = 30 * time.Second
	stopDelay = 8 * time.Second
	// afterKill and afterStop are how soon another server has to decide when the one that did is gone, in the median: more
	// than twice what it takes mostly, and less than where the Lease lasts as long as by default, or is not given up.
	afterKill, afterStop = 3 * leaseDuration, longLease / 2
)

// Of three servers that are used in all ways at once the one that decides is killed, again and again: another one
// decides soon, no node is ever overcommitted, and nothing is lost that was acknowledged.
func TestKilledLeaders(t *testing.T) {
	c := newCrowd(t, shared.StartT(t))
	stop := c.run()
	var took []time.Duration
	for range kills {
		c.revive()
		leader := c.leader()
		<-time.After(between + rand.N(between)) // it may be in the middle of anything
		began := time.Now()
		require.NoError(t, leader.Kill())
		var starting sync.WaitGroup
		starting.Go(func() { assert.NoError(t, leader.Start(t.Context())) })
		c.leader()
		took = append(took, time.Since(began))
		starting.Wait()
	}
	c.load.AssertDone(t, 5, "reserve", "bind a gang", "give back", "object", "consume", "ask")
	stop()
	report(t, "after a kill", took, afterKill)
	c.requireGood()
	c.requireBound()
}

// Three servers are replaced one after another, as a rolling update does, while they are used in all ways at once. Who
// repeats a request on a 503 has none that fails, and no connection breaks with a request on it.
func TestRollingRestart(t *testing.T) {
	c := newCrowd(t, shared.StartT(t), "--shutdown-delay="+stopDelay.String(),
		"--leader-elect-lease-duration="+longLease.String(), "--leader-elect-renew-deadline=20s")
	stop := c.run()
	var took []time.Duration
	for range rounds {
		for _, server := range c.servers {
			leads, began := decides(t.Context(), server), time.Now()
			var stopping sync.WaitGroup
			stopping.Go(func() {
				code, err := server.Stop()
				assert.NoError(t, err)
				assert.Zero(t, code)
			})
			if leads {
				took = append(took, c.awaitOther(server, began))
			}
			stopping.Wait()
			require.NoError(t, server.Start(t.Context()))
			c.awaitAllReady()
		}
	}
	c.load.AssertDone(t, 5, "reserve", "bind a gang", "give back", "object", "consume", "ask")
	stop()
	report(t, "after a stop", took, afterStop)
	c.requireGood()
	c.requireBound()
	assert.Zero(t, c.load.Times("no answer"), "connections that broke")
	assert.Zero(t, c.plain.Refusals()+c.hooks.Refusals(), "connections that were refused")
}

// leader waits for the server that decides.
func (c *cluster) leader() (leader *testbed.Server) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		leader = c.decider()
		return leader != nil
	}, testbed.Soon, testbed.Poll)
	return leader
}

// decider is the server that decides now, nil where none does.
func (c *cluster) decider() *testbed.Server {
	i := slices.IndexFunc(c.servers, func(s *testbed.Server) bool { return decides(c.T.Context(), s) })
	if i < 0 {
		return nil
	}
	return c.servers[i]
}

// awaitOther waits until another server than the one before decides, and returns how long that took.
func (c *cluster) awaitOther(before *testbed.Server, began time.Time) (took time.Duration) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		for _, s := range c.servers {
			if s != before && decides(c.T.Context(), s) {
				took = time.Since(began)
				return true
			}
		}
		return false
	}, testbed.Soon, testbed.Poll)
	return took
}

func report(t *testing.T, what string, took []time.Duration, limit time.Duration) {
	t.Helper()
	slices.Sort(took)
	half, worst := took[len(took)/2], took[len(took)-1]
	t.Logf("%s another server decides within %s (p50), %s (worst) of %d", what, half.Round(time.Millisecond), worst.Round(time.Millisecond), len(took))
	assert.Less(t, half, limit, what)
}
