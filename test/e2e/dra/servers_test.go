//go:build e2e || chaos

package dra

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// startServers starts two servers at one address, which the API server asks.
func (c *cluster) startServers(args ...string) (servers []*testbed.Server) {
	c.T.Helper()
	var hooks []testbed.Backend
	var webhook *clusterload.Webhook
	for i := range 2 {
		var err error
		webhook, err = clusterload.NewWebhook(c.ControlPlane)
		require.NoError(c.T, err)
		s := testbed.StartServer(c.T, c.ControlPlane, clusterload.ServerOptions{
			Name: fmt.Sprint("server-", i), StandBy: true, Args: slices.Concat(webhook.Args, []string{"--log-level=info"}, args),
		})
		servers = append(servers, s)
		hooks = append(hooks, testbed.Backend{Address: testbed.Host(webhook.URL), URL: s.URL})
	}
	c.Eventually(func(t *assert.CollectT) {
		for _, s := range servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()))
		}
	})
	webhook.URL = "https://" + testbed.NewService(c.T, hooks).Address() + "/admission"
	c.install(webhook)
	return servers
}

// leader is the server that decides.
func (c *cluster) leader(servers []*testbed.Server) (leader *testbed.Server) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		leader = nil
		for _, s := range servers {
			if leads, err := s.Metric(c.T.Context(), "globalreserve_leader"); err == nil && leads == 1 {
				leader = s
			}
		}
		assert.NotNil(t, leader)
	})
	return leader
}
