package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestSchedulerConfigs runs a kube-scheduler with each file of scheduler-config/. The pods of every
// profile must have passed through the server.
func TestSchedulerConfigs(t *testing.T) {
	c := newServedCluster(t, 5)
	tests := map[string]struct{ profiles, verbs []string }{
		"default-scheduler.yaml": {[]string{"default-scheduler"}, []string{"filter", "bind"}},
		"second-scheduler.yaml":  {[]string{"second-scheduler"}, []string{"filter", "bind"}},
		"two-profiles.yaml": {
			[]string{"default-scheduler", "packing-scheduler"},
			[]string{"filter", "prioritize", "bind"},
		},
	}
	const pods = 6
	for file, tt := range tests {
		t.Run(file, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			c.StartKubeScheduler(file, file)
			before := c.Scrape()
			for _, profile := range tt.profiles {
				c.Create(testbed.NewPods(pods, profile, profile, "500m")...)
			}
			snapshot := c.awaitSettled()
			require.Equal(t, pods*len(tt.profiles), snapshot.Bound)
			require.NoError(t, c.StopPart(file))
			after := c.Scrape()
			for _, profile := range tt.profiles {
				for _, verb := range tt.verbs {
					name := "globalreserve_decisions_total"
					grown := after.Sum(name, "verb", verb, "scheduler", profile) - before.Sum(name, "verb", verb, "scheduler", profile)
					require.GreaterOrEqual(t, grown, float64(pods), "%s calls for the pods of %s", verb, profile)
				}
			}
			c.requireAgreement()
			require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
		})
	}
	c.RequireNeverOvercommitted()
	c.requireNoDriftSeen()
}
