package plugin

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
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
		c.createWithoutVolume("unlucky")
		c.awaitClaims(1, "Reserve has taken the capacity")
		c.awaitClaims(0, "and Unreserve has given it back")
		assert.Empty(t, c.Pod("unlucky").Spec.NodeName)
	})
}

// createWithoutVolume creates a pod with a volume that is waited for in PreBind and never comes: nobody
// provisions it.
func (c *cluster) createWithoutVolume(name string) {
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
	c.create(name, "4", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	})
}

// A scheduler that is killed between Reserve and Bind leaves an allocation behind in the server's memory,
// which ends at its deadline; the scheduler in its place binds the pod.
func TestAKilledSchedulerLeavesNothingBehind(t *testing.T) {
	const ttl = 12 * time.Second
	eachMode(t, setup{nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		Args: map[string]any{"reservationTTL": ttl.String()},
	}}, func(t *testing.T, c *cluster) {
		c.createWithoutVolume("waiting")
		c.awaitClaims(1)
		require.NoError(t, c.Kill(scheduler))
		if c.Server != nil { // with the ledger in the scheduler its memory is gone
			assert.Len(t, c.claims(), 1)
			require.Eventually(t, func() bool { return len(c.claims()) == 0 }, ttl+testbed.Soon, testbed.Poll)
		}
		c.Delete("waiting")
		for i := range 2 {
			c.create(fmt.Sprint("next", i), "4")
		}
		require.NoError(t, c.RestartPart(t.Context(), scheduler))
		for i := range 2 {
			c.bound(fmt.Sprint("next", i))
		}
		c.awaitClaims(0) // the API server shows a Binding before the scheduler has its answer
		c.RequireNeverOvercommitted()
	})
}

// While the server is away pods wait, or not, by the policy; when it is back they go on within some
// seconds of its being ready.
func TestServerAway(t *testing.T) {
	const away = "GlobalReserve: the server cannot be reached"
	start := func(t *testing.T, policy string) *cluster {
		c := newCluster(t, setup{remote: true, nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
			Args: map[string]any{"failurePolicy": policy},
		}})
		c.create("before", "1")
		c.bound("before")
		c.create("large", "100") // what is said of it shows that the mirror has heard of the pod before
		c.Eventually(func(t *assert.CollectT) { assert.Contains(t, c.AwaitRefused("large"), "Insufficient cpu") })
		c.Delete("large")
		return c
	}
	t.Run("Fail, frozen", func(t *testing.T) {
		c := start(t, "Fail")
		require.NoError(t, c.Server.Signal(syscall.SIGSTOP)) // its connections stay, and nothing comes
		c.create("meanwhile", "1")
		assert.Contains(t, c.AwaitRefused("meanwhile"), away)
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
		require.NoError(t, c.Server.Kill())
		c.create("meanwhile", "1")
		assert.Contains(t, c.AwaitRefused("meanwhile"), away)
		require.NoError(t, c.Server.Start(t.Context())) // it is ready when this returns
		ready := time.Now()
		c.boundSoon("meanwhile", ready) // the watch tries again now and then
		c.RequireNeverOvercommitted()
	})
	t.Run("Ignore", func(t *testing.T) {
		c := start(t, "Ignore")
		require.NoError(t, c.Server.Kill())
		c.create("meanwhile", "1")
		c.bound("meanwhile")
		require.NoError(t, c.Server.Start(t.Context()))
		c.create("after", "1")
		c.bound("after")
		c.RequireNeverOvercommitted() // there was capacity for all
	})
}

// A bind whose answer is lost is neither repeated elsewhere nor forgotten.
func TestLostAnswersOfBinds(t *testing.T) {
	c := newCluster(t, setup{nodes: 2, cpu: "4", proxied: true})
	c.Proxy.SetFault(func(r *http.Request) controlplane.Fault {
		return controlplane.Fault{DropAnswer: controlplane.IsBinding(r)}
	})
	for i := range 8 {
		c.create(fmt.Sprint("p", i), "1")
	}
	for i := range 8 {
		c.bound(fmt.Sprint("p", i))
	}
	c.Proxy.SetFault(nil)
	assert.Positive(t, c.Proxy.Faulted())
	c.RequireNeverOvercommitted()
	c.awaitClaims(0, "every bind is settled")
}
