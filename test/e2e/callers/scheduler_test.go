package callers

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/authority"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A kube-scheduler that says who it is by its certificate has its pods bound by the server, with the roles of
// manifests/base; one that is somebody else gets nothing.
func TestKubeSchedulerOverTLS(t *testing.T) {
	c := newCluster(t)
	start := func(name, user string, edits ...string) {
		t.Helper()
		certificate, key := authority.Pair(c.ClientCertificate(time.Hour, user))
		files := map[string][]byte{name + ".crt": certificate, name + ".key": key}
		for file, content := range files {
			require.NoError(t, os.WriteFile(filepath.Join(c.Dir(), file), content, 0o600))
		}
		plain := c.Ledger.URL
		c.Ledger.URL = c.DocumentedTLS(c.servers[1].tls, user)
		defer func() { c.Ledger.URL = plain }()
		c.StartKubeScheduler(name, "default-scheduler-tls.yaml", append(edits,
			"/etc/kubernetes/globalreserve/ca.crt", c.CAFile(),
			"/etc/kubernetes/globalreserve/scheduler.crt", filepath.Join(c.Dir(), name+".crt"),
			"/etc/kubernetes/globalreserve/scheduler.key", filepath.Join(c.Dir(), name+".key"),
			"serverName: globalreserve.globalreserve-system.svc", "serverName: localhost")...)
	}
	start("default-scheduler", "system:kube-scheduler")
	start("impostor", "system:node:"+c.nodes[0], "schedulerName: default-scheduler", "schedulerName: impostor",
		"leaderElect: true", "leaderElect: false")
	c.Create(testbed.NewPods(5, "served", "default-scheduler", "1")...)
	c.Create(testbed.NewPods(1, "refused", "impostor", "1")...)
	for _, pod := range []string{"served-0", "served-1", "served-2", "served-3", "served-4"} {
		c.AwaitBound(pod)
	}
	c.Eventually(func(t *assert.CollectT) {
		bound := c.Metric("globalreserve_decisions_total", "verb", "bind", "result", "granted")
		assert.GreaterOrEqual(t, bound, 5, "the server did so")
		assert.Contains(t, c.AwaitRefused("refused-0"), "403")
	})
	c.RequireNeverOvercommitted()
}
