//go:build e2e

package plugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
)

// TestAutoscalersMakeNoNodesForLimitedPods: a pod over its scheduler's limit is not Unschedulable, which autoscalers
// make nodes for, and is placed when the limit lets it in.
func TestAutoscalersMakeNoNodesForLimitedPods(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: config.globalreserve.io/v1alpha1
kind: GlobalReservePolicy
schedulers: [{name: `+scheduler+`, callers: ["globalreserve:trusted"], limits: {cpu: 1}}]
`), 0o600))
	c := newCluster(t, setup{nodes: 1, cpu: "4", scheduler: clusterload.PluginSchedulerOptions{
		ServerArgs: map[string]any{"policyFile": file},
	}})
	c.create("first", "1")
	c.bound("first")
	c.create("second", "1")
	c.Eventually(func(t *assert.CollectT) {
		for _, condition := range c.Pod("second").Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				assert.Equal(t, v1alpha1.PodReasonHeldBack, condition.Reason)
				assert.Contains(t, condition.Message, "schedulers.limits")
				return
			}
		}
		assert.Fail(t, "nobody has tried it yet")
	})
	c.Delete("first")
	c.bound("second")
}
