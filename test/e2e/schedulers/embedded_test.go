//go:build e2e

package schedulers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestEmbeddedPlacesGangs runs examples/embedded in the place of the server, with the server's rights and flags: it
// places its own gangs, and a kube-scheduler behind it the other pods, from one ledger. Started anew it goes on.
func TestEmbeddedPlacesGangs(t *testing.T) {
	const scheduler = "embedded-scheduler"
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(2, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{Binary: testbed.Program(t, "embedded")})
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	gang := func(name string, size, pods int, cpu string) {
		c.Create(testbed.NewPods(pods, name, scheduler, cpu, func(p *corev1.Pod) { gangsched.Mark(p, name, size) })...)
	}
	c.Create(testbed.NewPods(2, "other", "default-scheduler", "1")...)
	awaitBound(&c, 2)
	gang("whole", 3, 3, "1500m")
	gang("large", 3, 3, "1500m") // of 8 CPUs, 1.5 are free
	gang("short", 3, 2, "100m")
	bound := awaitBound(&c, 5)
	assert.Contains(t, bound, "whole-2")

	c.Server.KillAlone(t)
	require.NoError(t, c.Server.Start(t.Context()))
	c.Delete("whole-0", "whole-1", "whole-2")
	assert.Contains(t, awaitBound(&c, 5), "large-0")
	c.RequireNeverOvercommitted()
}
