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
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// A pod whose volume cannot be bound fails in PreBind, long after Reserve: its room is given back, at
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
		c.createUnprovisionedVolume("data")
		c.create(newPod("unlucky", "4", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}
		}))
		require.Eventually(t, func() bool { return len(c.claims()) == 1 }, soon, poll, "Reserve has taken the room")
		require.Eventually(t, func() bool { return len(c.claims()) == 0 }, soon, poll, "and Unreserve has given it back")
		assert.Empty(t, c.pod("unlucky").Spec.NodeName)
	})
}

// createUnprovisionedVolume makes a claim for a volume that is waited for in PreBind and never comes:
// nobody provisions it.
func (c *cluster) createUnprovisionedVolume(name string) {
	c.t.Helper()
	ctx := c.t.Context()
	_, err := c.Client().StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Provisioner: "example.com/nobody",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	_, err = c.Client().CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("nobody"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// A scheduler that is killed between Reserve and Bind leaves a claim behind in the server's memory,
// which ends at its deadline; the scheduler in its place binds the pod.
func TestAKilledSchedulerLeavesNothingBehind(t *testing.T) {
	const ttl = 5 * time.Second
	eachMode(t, setup{nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		Args: map[string]any{"reservationTTL": ttl.String()},
	}}, func(t *testing.T, c *cluster) {
		c.createUnprovisionedVolume("data")
		c.create(newPod("waiting", "4", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}
		}))
		require.Eventually(t, func() bool { return len(c.claims()) == 1 }, soon, poll)
		require.NoError(t, c.Kill(scheduler))
		if c.server != nil { // with the ledger in the scheduler its memory is gone
			assert.Len(t, c.claims(), 1)
			require.Eventually(t, func() bool { return len(c.claims()) == 0 }, ttl+2*time.Second, poll)
		}
		c.delete("waiting")
		for i := range 2 {
			c.create(newPod(fmt.Sprint("next", i), "4"))
		}
		require.NoError(t, c.RestartPart(t.Context(), scheduler))
		for i := range 2 {
			c.bound(fmt.Sprint("next", i))
		}
		assert.Empty(t, c.claims())
		assert.Empty(t, c.watcher.Violations())
	})
}

// While the server is away pods wait, or not, by the policy; when it is back they go on within a
// second of its being ready.
func TestServerAway(t *testing.T) {
	start := func(t *testing.T, policy string) *cluster {
		c, _ := newCluster(t, setup{remote: true, nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
			Args: map[string]any{"failurePolicy": policy},
		}})
		c.create(newPod("before", "1"))
		c.bound("before")
		require.NoError(t, c.server.Kill())
		return c
	}
	// A server that hangs looks as if it were there: its connections stay, and nothing comes.
	freeze := func(t *testing.T, policy string) *cluster {
		c, _ := newCluster(t, setup{remote: true, nodes: 2, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
			Args: map[string]any{"failurePolicy": policy},
		}})
		c.create(newPod("before", "1"))
		c.bound("before")
		require.NoError(t, c.server.Signal(syscall.SIGSTOP))
		return c
	}
	t.Run("Fail, frozen", func(t *testing.T) {
		c := freeze(t, "Fail")
		c.create(newPod("meanwhile", "1"))
		assert.Contains(t, c.refused("meanwhile"), "GlobalReserve: the server cannot be reached")
		require.NoError(t, c.server.Signal(syscall.SIGCONT))
		c.bound("meanwhile")
		require.Eventually(t, func() bool { return len(c.claims()) == 0 }, soon, poll, "no claim is left behind")
		assert.Empty(t, c.watcher.Violations())
	})
	t.Run("Ignore, frozen", func(t *testing.T) {
		c := freeze(t, "Ignore")
		c.create(newPod("meanwhile", "1"))
		c.bound("meanwhile")
		require.NoError(t, c.server.Signal(syscall.SIGCONT))
		c.create(newPod("after", "1"))
		c.bound("after")
		require.Eventually(t, func() bool { return len(c.claims()) == 0 }, soon, poll, "no claim is left behind")
		assert.Empty(t, c.watcher.Violations(), "there was room for all")
	})
	t.Run("Fail", func(t *testing.T) {
		c := start(t, "Fail")
		c.create(newPod("meanwhile", "1"))
		assert.Contains(t, c.refused("meanwhile"), "GlobalReserve: the server cannot be reached")
		require.NoError(t, c.server.Start(t.Context())) // it is ready when this returns
		ready := time.Now()
		c.bound("meanwhile")
		t.Logf("bound %s after the server was back", time.Since(ready).Round(time.Millisecond))
		assert.Less(t, time.Since(ready), 2*time.Second, "the watch tries again now and then")
		assert.Empty(t, c.watcher.Violations())
	})
	t.Run("Ignore", func(t *testing.T) {
		c := start(t, "Ignore")
		c.create(newPod("meanwhile", "1"))
		c.bound("meanwhile")
		require.NoError(t, c.server.Start(t.Context()))
		c.create(newPod("after", "1"))
		c.bound("after")
		assert.Empty(t, c.watcher.Violations(), "there was room for all")
	})
}

// A bind whose answer is lost is neither repeated elsewhere nor forgotten.
func TestLostAnswersOfBinds(t *testing.T) {
	c, proxy := newCluster(t, setup{nodes: 2, cpu: "4", proxied: true})
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		return controlplane.Fault{DropAnswer: controlplane.IsBinding(r)}
	})
	for i := range 8 {
		c.create(newPod(fmt.Sprint("p", i), "1"))
	}
	for i := range 8 {
		c.bound(fmt.Sprint("p", i))
	}
	proxy.SetFault(nil)
	assert.Positive(t, proxy.Faulted())
	assert.Empty(t, c.watcher.Violations())
	require.Eventually(t, func() bool { return len(c.claims()) == 0 }, soon, poll, "every bind is settled")
}
