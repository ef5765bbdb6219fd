//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Volcano has begun to bind gangs when kube-scheduler is let go. They share the capacity without a node that is
// overcommitted at any moment, and no gang ends as a half.
func TestVolcanoUnderAdmission(t *testing.T) {
	c := newVolcanoCluster(t, 12, shipped)
	c.fillTogether()
	c.requireNothingKept()
	snapshot := c.Watcher.Snapshot()
	whole, half := snapshot.CountGangs()
	t.Logf("gangs: %d whole, %d half, of %d", whole, half, len(snapshot.Gangs))
	assert.Zero(t, half, "gangs that are half")
	assert.NotZero(t, whole, "Volcano took no part")
	assert.GreaterOrEqual(t, c.admitted(), whole*gangSize, "admission was asked about Volcano's bindings")
	c.RequireNeverOvercommitted()
}
