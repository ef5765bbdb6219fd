//go:build e2e

package gangs

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A gang has started. Its server starts anew, and cannot list PodGroups for longer than it waits for that. What was
// kept for the rest of the gang goes to nobody else, and to the gang.
func TestPodGroupsAreReadLate(t *testing.T) {
	c := newBareCluster(t, 1, long)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	webhook := c.startServer(clusterload.ServerOptions{Proxy: proxy})
	c.Ledger = c.servers[0].Caller
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	c.createPodGroup("gang", 3)
	for _, name := range []string{"gang-0", "gang-1", "gang-2"} {
		c.CreatePod(name, byHand, "1", func(pod *corev1.Pod) {
			pod.Labels = testbed.Pairs(clusterload.PodGroupLabel, "gang")
		})
	}
	c.CreatePod("stranger", byHand, "2")
	bind := func(name string) error { return c.bindNow(t.Context(), name, c.nodes[0]) }
	c.bindSoon("gang-0") // once all members are seen
	require.ErrorContains(t, bind("stranger"), "too little cpu")

	var held atomic.Bool
	release := make(chan struct{})
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/podgroups") {
			held.Store(true)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return controlplane.Fault{}
	})
	c.servers[0].Crash(t)
	c.leader()
	require.ErrorContains(t, bind("stranger"), "too little cpu")
	require.True(t, held.Load())
	close(release)
	c.bindSoon("gang-1", "gang-2")
	require.ErrorContains(t, bind("stranger"), "too little cpu")
	c.RequireNeverOvercommitted()
}
