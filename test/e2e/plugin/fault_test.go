//go:build e2e

package plugin

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// A pod whose volume cannot be bound fails in PreBind, long after Reserve: its capacity is given back, at
// once and not at the deadline.
func TestReserveIsUndoneWhenTheCycleFailsLater(t *testing.T) {
	options := setup{nodes: 1, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		Args: map[string]any{"reservationTTL": "1h"},
		Change: func(config map[string]any) {
			for _, p := range config["profiles"].([]any) {
				profile := p.(map[string]any)
				profile["pluginConfig"] = append(profile["pluginConfig"].([]any), map[string]any{
					"name": "VolumeBinding", "args": map[string]any{"bindTimeoutSeconds": 3},
				})
			}
		},
	}}
	eachMode(t, options, func(t *testing.T, c *cluster) {
		c.createWithoutVolume()
		c.awaitClaims(1, "Reserve has taken the capacity")
		c.awaitClaims(0, "and Unreserve has given it back")
		assert.Empty(t, c.Pod("unlucky").Spec.NodeName)
	})
}

// createWithoutVolume creates the pod "unlucky" with a volume that is waited for in PreBind and never comes: nobody
// provisions it.
func (c *cluster) createWithoutVolume() {
	c.T.Helper()
	c.Apply(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: nobody}
provisioner: example.com/nobody
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: nobody, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	c.create("unlucky", "4", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	})
}

// While the server is away pods wait, or not, by the policy; when it is back they go on.
func TestServerAway(t *testing.T) {
	start := func(t *testing.T, policy string) *cluster {
		c := newCluster(t, setup{remote: true, nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
			Args: map[string]any{"failurePolicy": policy},
		}})
		c.create("before", "1")
		c.bound("before")
		return c
	}
	t.Run("Fail, frozen", func(t *testing.T) {
		c := start(t, "Fail")
		require.NoError(t, c.Server.Signal(syscall.SIGSTOP)) // its connections stay, and nothing comes
		c.create("meanwhile", "1")
		assert.Contains(t, c.AwaitRefused("meanwhile"), "GlobalReserve: the server cannot be reached")
		require.NoError(t, c.Server.Signal(syscall.SIGCONT))
		c.bound("meanwhile")
		c.awaitClaims(0, "no allocation is left behind")
		c.RequireNeverOvercommitted()
	})
	t.Run("Ignore, frozen", func(t *testing.T) {
		c := start(t, "Ignore")
		require.NoError(t, c.Server.Signal(syscall.SIGSTOP)) // its connections stay, and nothing comes
		c.create("meanwhile", "1")
		c.bound("meanwhile")
		require.NoError(t, c.Server.Signal(syscall.SIGCONT))
		c.create("after", "1")
		c.bound("after")
		c.awaitClaims(0, "no allocation is left behind")
		c.RequireNeverOvercommitted() // there was capacity for all
	})
	t.Run("Fail", func(t *testing.T) {
		c := start(t, "Fail")
		c.Server.KillAlone(t)
		c.create("meanwhile", "1")
		assert.Contains(t, c.AwaitRefused("meanwhile"), "GlobalReserve: the server cannot be reached")
		require.NoError(t, c.Server.Start(t.Context())) // it is ready when this returns
		ready := time.Now()
		c.bound("meanwhile")
		t.Logf("bound %s after the server was back", time.Since(ready).Round(time.Millisecond))
		c.RequireNeverOvercommitted()
	})
	t.Run("Ignore", func(t *testing.T) {
		c := start(t, "Ignore")
		c.Server.KillAlone(t)
		c.create("meanwhile", "1")
		c.bound("meanwhile")
		require.NoError(t, c.Server.Start(t.Context()))
		c.create("after", "1")
		c.bound("after")
		c.RequireNeverOvercommitted() // there was capacity for all
	})
}
