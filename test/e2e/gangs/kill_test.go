//go:build chaos

package gangs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The server that decides is killed half way through the bindings of a gang, beside others who take all the capacity
// they can get. Another server takes over, and goes on with what was kept.
func TestServerKilledHalfWay(t *testing.T) {
	const size = 40
	for name, bind := range binders() {
		t.Run(name, func(t *testing.T) {
			c := newReplicatedCluster(t, size*5/4/nodeCPUs, relaxed)
			g, others := c.createGang("gang", size), c.createSingles()
			leader := c.leader()
			c.startBinder(bind, g)
			c.awaitMembers(g, 1)
			c.startBinder(atOnce, others)
			require.NoError(t, leader.Kill())
			bound, _, _ := c.halves.of(c.key(g))
			t.Logf("killed with %d of %d members bound", bound, size)
			c.requireWholeOrNone(g)
			c.requireNothingKept()
			c.RequireNeverOvercommitted()
		})
	}
}

// Coscheduling is killed while gangs are half, beside a kube-scheduler that takes all the capacity it can get. What was
// kept is still there when it comes back.
func TestCoschedulingKilledHalfWay(t *testing.T) {
	c := newCluster(t, raceNodes, shipped)
	c.startGangScheduler()
	c.startKubeScheduler()
	for i := range 3 {
		c.raceUntilHalf(fmt.Sprint("kill-", i))
		require.NoError(t, c.schedulers[0].Kill())
		require.NoError(t, c.schedulers[0].Start(t.Context()))
		snapshot := c.awaitQuiet()
		whole, half := snapshot.CountGangs()
		t.Logf("round %d: gangs: %d whole, %d half, of %d", i, whole, half, len(snapshot.Gangs))
		assert.Zero(t, half, "gangs that are half")
		c.requireNothingKept()
		c.RequireNeverOvercommitted()
		c.clear()
	}
}

// raceUntilHalf races until a gang is seen half way, which a machine that stands still for a moment may miss.
func (c *cluster) raceUntilHalf(prefix string) {
	c.T.Helper()
	for try := range 5 {
		c.race(fmt.Sprintf("%s-%d", prefix, try))
		ctx, cancel := context.WithTimeout(c.T.Context(), 20*time.Second)
		err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			_, half := c.Watcher.Snapshot().CountGangs()
			return half > 0, nil
		})
		cancel()
		if err == nil {
			return
		}
		c.awaitQuiet()
		c.clear()
	}
	require.Fail(c.T, "no gang was seen half way")
}
