//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const policyHead = "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"

func strategy(name string) string { return policyHead + "prioritize: {strategy: " + name + "}\n" }

// mountedPolicy is a directory like the one kubelet mounts a ConfigMap at: the file is a link into
// ..data, which is a link to a directory that is replaced as a whole.
type mountedPolicy struct {
	t    *testing.T
	dir  string
	next int
}

func mountPolicy(t *testing.T, content string) *mountedPolicy {
	t.Helper()
	m := &mountedPolicy{t: t, dir: t.TempDir()}
	m.write(content)
	require.NoError(t, os.Symlink(filepath.Join("..data", "policy.yaml"), m.file()))
	return m
}

func (m *mountedPolicy) file() string { return filepath.Join(m.dir, "policy.yaml") }

// write does what kubelet's AtomicWriter does: a new directory, a link to it, a rename over ..data.
func (m *mountedPolicy) write(content string) {
	m.t.Helper()
	m.next++
	name := fmt.Sprintf("..2026_%d", m.next)
	require.NoError(m.t, os.Mkdir(filepath.Join(m.dir, name), 0o700))
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, name, "policy.yaml"), []byte(content), 0o600))
	temporary := filepath.Join(m.dir, "..data_tmp")
	require.NoError(m.t, os.Symlink(name, temporary))
	before, _ := os.Readlink(filepath.Join(m.dir, "..data"))
	require.NoError(m.t, os.Rename(temporary, filepath.Join(m.dir, "..data")))
	if before != "" {
		require.NoError(m.t, os.RemoveAll(filepath.Join(m.dir, before)))
	}
}

// TestPolicyReload changes the mounted policy under a running server.
func TestPolicyReload(t *testing.T) {
	c := newCluster(t, 2)
	mount := mountPolicy(t, strategy("MostAllocated"))
	c.startServer(clusterload.ServerOptions{Args: []string{"--policy-file=" + mount.file()}})
	used := c.CreatePod("used", nobody, "2")
	require.Empty(t, c.Bind(used, "node-0"))
	asking := c.CreatePod("asking", nobody, "1")
	loaded := "globalreserve_policy_last_reload_success_timestamp_seconds"
	failed := "globalreserve_policy_reload_failures_total"
	require.NotZero(t, c.Metric(loaded))
	c.requirePreferred(asking, "node-0")

	mount.write(strategy("LeastAllocated"))
	c.requirePreferred(asking, "node-1")

	for i, bad := range []string{
		strategy("MostUsed"),
		policyHead + "priority: {strategy: MostAllocated}\n",
		policyHead + "schedulers: [{name: batch, limits: {cpu: 60%}}]\n",
		"this is no YAML: [",
		"",
	} {
		mount.write(bad)
		c.Eventually(func(t *assert.CollectT) {
			assert.GreaterOrEqual(t, c.Metric(failed), i+1, "nobody noticed: %s", bad)
		})
		c.requirePreferred(asking, "node-1")
	}
	lastGood := c.Scrape().Sum(loaded) // with its fraction: a reload takes less than a second

	mount.write(strategy("MostAllocated"))
	c.requirePreferred(asking, "node-0")
	c.Eventually(func(t *assert.CollectT) { assert.Greater(t, c.Scrape().Sum(loaded), lastGood) })
}

// requirePreferred waits until prioritize puts a node first.
func (c *cluster) requirePreferred(pod *corev1.Pod, node string) {
	c.T.Helper()
	names := []string{"node-0", "node-1"}
	c.Eventually(func(t *assert.CollectT) {
		var answer extenderv1.HostPriorityList
		args := &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}
		require.NoError(t, c.Ledger.Post(c.T.Context(), testbed.PrioritizePath, args, &answer))
		scores := map[string]int64{}
		for _, entry := range answer {
			assert.GreaterOrEqual(t, entry.Score, extenderv1.MinExtenderPriority)
			assert.LessOrEqual(t, entry.Score, extenderv1.MaxExtenderPriority)
			scores[entry.Host] = entry.Score
		}
		assert.Len(t, scores, 2)
		for name, score := range scores {
			assert.True(t, name == node || score < scores[node], "%v", scores)
		}
	})
}

// TestPolicyTTLs checks how long reservations may last.
func TestPolicyTTLs(t *testing.T) {
	c := newCluster(t, 1)
	mount := mountPolicy(t, policyHead+`
schedulers: [{name: batch, maxReservationTTL: 1h}]
reservations: {defaultTTL: 5m, maxTTL: 2h}
`)
	c.startServer(clusterload.ServerOptions{Args: []string{"--policy-file=" + mount.file()}})
	tests := map[string]struct {
		scheduler string
		ttl       int64
		lasts     time.Duration // 0: refused
	}{
		"nothing asked":                     {nobody, 0, 5 * time.Minute},
		"less than the maximum":             {nobody, 7200, 2 * time.Hour},
		"more than the maximum":             {nobody, 7201, 0},
		"nothing asked by one with a limit": {"batch", 0, 5 * time.Minute},
		"less than the limit of its own":    {"batch", 3600, time.Hour},
		"more than the limit of its own":    {"batch", 3601, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			asked := gangOf(testbed.NewPods(1, "pod", nobody, "1"), "node-0")
			asked.SchedulerName, asked.TTLSeconds = test.scheduler, test.ttl
			if test.lasts == 0 {
				got, err := c.Server.Send(t.Context(), http.MethodPost, testbed.ReservePath, asked)
				require.NoError(t, err)
				requireError(t, got, http.StatusBadRequest)
				require.Empty(t, c.Kept())
				return
			}
			answer := c.Reserve(asked)
			require.Empty(t, answer.Error)
			require.WithinDuration(t, time.Now().Add(test.lasts), answer.ExpiresAt, 5*time.Second)
			require.WithinDuration(t, answer.ExpiresAt, c.Kept()[0].ExpiresAt, time.Second)
			asked.TTLSeconds = 0
			require.Empty(t, c.Unreserve(asked).Error)
		})
	}
}

// TestBadPolicyAtStart checks that a server does not start with a policy it cannot follow, and that
// `globalreserve policy validate` says so beforehand.
func TestBadPolicyAtStart(t *testing.T) {
	c := newCluster(t, 1)
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	binary := filepath.Join(root, "bin", "globalreserve")
	good, bad := mountPolicy(t, strategy("LeastAllocated")), mountPolicy(t, policyHead+"limits: {}\n")

	output, err := exec.CommandContext(t.Context(), binary, "policy", "validate", good.file()).CombinedOutput()
	require.NoError(t, err, "%s", output)
	output, err = exec.CommandContext(t.Context(), binary, "policy", "validate", bad.file()).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "limits")

	_, err = clusterload.StartServer(t.Context(), c.ControlPlane, clusterload.ServerOptions{
		Args: []string{"--policy-file=" + bad.file()},
	})
	require.ErrorContains(t, err, "exit code 1")
	require.ErrorContains(t, err, "limits")
}
