//go:build e2e

package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
	c := newCluster(t, options)
	c.createWithoutVolume()
	c.awaitClaims(1, "Reserve has taken the capacity")
	c.awaitClaims(0, "and Unreserve has given it back")
	assert.Empty(t, c.Pod("unlucky").Spec.NodeName)
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
