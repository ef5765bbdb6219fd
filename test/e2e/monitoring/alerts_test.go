//go:build e2e

package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// root returns a path in the repository.
func root(t *testing.T, path ...string) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	return filepath.Join(append([]string{root}, path...)...)
}

// writeRules writes the rules of the PrometheusRule the way Prometheus itself reads them.
func writeRules(t *testing.T, folder string) (file string) {
	t.Helper()
	content, err := os.ReadFile(root(t, "manifests", "monitoring", "rules.yaml"))
	require.NoError(t, err)
	var object struct {
		Spec any `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(content, &object))
	rules, err := yaml.Marshal(object.Spec)
	require.NoError(t, err)
	file = filepath.Join(folder, "rules.yaml")
	require.NoError(t, os.WriteFile(file, rules, 0o600))
	return file
}

// TestAlerts: each alert fires for what it is about, after its time, and none in an hour of normal churn; see
// testdata/alerts.yaml.
func TestAlerts(t *testing.T) {
	folder := t.TempDir()
	rules := writeRules(t, folder)
	content, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	require.NoError(t, err)
	tests := filepath.Join(folder, "alerts.yaml")
	require.NoError(t, os.WriteFile(tests, content, 0o600))
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", tests}} {
		said, err := exec.CommandContext(t.Context(), root(t, "bin", "monitoring", "promtool"), args...).CombinedOutput()
		require.NoError(t, err, "%s; `make prometheus` builds promtool", said)
	}
}
