//go:build e2e

package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestKilledAtEachStep kills the command as soon as the cluster shows how far it is. Then the same command ends it, or
// --undo takes it back.
func TestKilledAtEachStep(t *testing.T) {
	steps := map[string]func(b *bench, had int) bool{
		"it has just started": func(*bench, int) bool { return true },
		"places are kept":     func(b *bench, _ int) bool { return len(b.ListReservations()) > 0 },
		"nodes are cordoned":  func(b *bench, _ int) bool { return b.cordoned(b.nodes[0]) },
		"half is evicted":     func(b *bench, had int) bool { return b.on(b.nodes[0], "web", "db") <= had/2 },
	}
	for name, reached := range steps {
		for how, flags := range map[string][]string{"again": nil, "undo": {"--undo"}} {
			t.Run(name+", "+how, func(t *testing.T) {
				b := newBench(t, 3, "8")
				b.deploy(app{name: "web", kind: "Deployment", replicas: 9, cpu: "1"})
				b.deploy(app{name: "db", kind: "StatefulSet", replicas: 3, cpu: "1"})
				node := b.nodes[0]
				had := b.on(node, "web", "db")
				require.Greater(t, had, 2, "or the test shows nothing")
				cmd, _ := b.command("drain", node)
				require.NoError(t, cmd.Start())
				b.Eventually(func(t *assert.CollectT) { assert.True(t, reached(b, had)) })
				require.NoError(t, cmd.Process.Kill())
				_ = cmd.Wait() // it was killed

				out, code := b.drain(append([]string{node}, flags...)...)
				require.Zero(t, code, out)
				b.awaitPods("web", 9)
				b.awaitPods("db", 3)
				assert.Empty(t, b.ListReservations(), out)
				assert.Equal(t, how == "again", b.cordoned(node), out)
				if how == "again" {
					assert.Zero(t, b.on(node, "web", "db"), out)
				}
				b.RequireNeverOvercommitted()
			})
		}
	}
}

// TestLeaderChange kills the server that decides while pods are evicted; the command and the scheduler ask the other.
func TestLeaderChange(t *testing.T) {
	b := newBench(t, 3, "8")
	first := b.Server
	second := testbed.StartServer(t, b.ControlPlane, clusterload.ServerOptions{Name: "second", StandBy: true})
	b.Ledger = second.Caller
	b.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	b.deploy(app{name: "web", kind: "Deployment", scheduler: "second-scheduler", replicas: 12, cpu: "1"})
	node := b.nodes[0]
	had := b.on(node, "web")
	require.Greater(t, had, 2, "or the test shows nothing")
	cmd, out := b.command("drain", node)
	require.NoError(t, cmd.Start())
	b.Eventually(func(t *assert.CollectT) { assert.Less(t, b.on(node, "web"), had) })
	first.KillAlone(t)
	require.NoError(t, cmd.Wait(), out)
	assert.Zero(t, b.on(node, "web"), out)
	b.awaitPods("web", 12)
	assert.Empty(t, b.ListReservations(), out)
	b.RequireNeverOvercommitted()
}
