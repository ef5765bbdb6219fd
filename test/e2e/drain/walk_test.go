//go:build e2e

package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWalk goes the way of somebody who looks where the pods of a node would go, drains it, sees what the drain waits
// for, wants to drain one more, for which there is no capacity, and takes the first one back.
func TestWalk(t *testing.T) {
	b := newBench(t, 4, "4")
	b.deploy(app{name: "web", kind: "Deployment", replicas: 8, cpu: "1"})
	b.deploy(app{name: "db", kind: "StatefulSet", replicas: 3, cpu: "1"})
	node := b.nodes[0]
	had := b.on(node, "web", "db")
	require.Positive(t, had, "or the test shows nothing")

	out, code := b.drain(node, "--dry-run=server")
	require.Zero(t, code, out)
	assert.Contains(t, out, "Deployment/web")
	assert.NotContains(t, out, "nowhere")
	assert.Equal(t, had, b.on(node, "web", "db"))
	assert.False(t, b.cordoned(node))
	assert.Empty(t, b.ListReservations())

	b.budget("web", 8) // no pod of it may go
	cmd, printed := b.command("drain", node)
	require.NoError(t, cmd.Start())
	b.Eventually(func(t *assert.CollectT) {
		out, code = b.run("list", "-A")
		assert.Zero(t, code, out)
		assert.Regexp(t, `drain-\w+ +`+node+` +\d+ +[1-9]\d* +Deployment/web: pod/\S+ has to wait: .*disruption budget`, out)
	})
	assert.NotContains(t, out, "RESERVATION", "its parts are not listed again")
	b.budget("web", 7)
	require.NoError(t, cmd.Wait(), printed)
	out = printed.String()
	assert.Contains(t, out, "node/"+node+" cordoned")
	assert.Contains(t, out, "drained")
	listed, code := b.run("list", "-A")
	require.Zero(t, code, listed)
	assert.Equal(t, "Nothing is reserved.\n", listed)
	assert.True(t, b.cordoned(node))
	b.awaitPods("web", 8)
	b.awaitPods("db", 3)
	assert.Zero(t, b.on(node, "web", "db"))
	assert.Empty(t, b.ListReservations(), "nothing is kept")

	// 11 of 12 CPUs are used now, so that the pods of one more node have no place.
	out, code = b.drain(b.nodes[1])
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, "nowhere: no node of 4 fits")
	assert.Contains(t, out, "there is no place for")
	assert.False(t, b.cordoned(b.nodes[1]))
	assert.Empty(t, b.ListReservations())

	out, code = b.drain(node, "--undo")
	require.Zero(t, code, out)
	assert.False(t, b.cordoned(node))
	b.RequireNeverOvercommitted()
}
