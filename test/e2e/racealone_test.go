//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// raceRounds is how often is raced at most, so that a node is overcommitted: at the first try as a rule.
const raceRounds = 5

// TestRaceAlone is TestRace without GlobalReserve, each scheduler on its own copy of the cluster: the verdict can be bad.
func TestRaceAlone(t *testing.T) {
	newCluster(t, raceNodes).requireOvercommit()
}

// requireOvercommit races without the server, which ends badly: at the first try as a rule.
func (c *cluster) requireOvercommit() {
	c.T.Helper()
	names := c.startRacers("-alone")
	for round := 0; len(c.Watcher.Violations()) == 0; round++ {
		require.Less(c.T, round, raceRounds, "no node was ever overcommitted: the race shows nothing")
		c.clear()
		c.race()
	}
	require.NotZero(c.T, c.Watcher.Snapshot().OvercommittedNodes)
	for _, name := range names {
		require.NoError(c.T, c.StopPart(name))
	}
}
