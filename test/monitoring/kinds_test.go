package monitoring

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

const manifests = "../../manifests/"

// decode reads a file into its kind; a field that the kind does not have fails the test.
func decode[T any](t *testing.T, file string) *T {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(manifests + file))
	require.NoError(t, err)
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict(content, object), file)
	return object
}

// TestKinds: each object is of the kind it names, and they find each other: the ServiceMonitor its Service, that the
// server's port for probes and metrics, which the scraper may reach.
func TestKinds(t *testing.T) {
	monitor := decode[monitoringv1.ServiceMonitor](t, "monitoring/servicemonitor.yaml")
	service := decode[corev1.Service](t, "monitoring/service.yaml")
	policy := decode[networkingv1.NetworkPolicy](t, "monitoring/networkpolicy.yaml")
	rules := decode[monitoringv1.PrometheusRule](t, "monitoring/rules.yaml")

	assert.Equal(t, monitoringv1.ServiceMonitorsKind, monitor.Kind)
	assert.Equal(t, monitoringv1.PrometheusRuleKind, rules.Kind)
	require.Len(t, monitor.Spec.Endpoints, 1)
	require.Len(t, service.Spec.Ports, 1)
	assert.Equal(t, service.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
	assert.Equal(t, service.Labels, monitor.Spec.Selector.MatchLabels)
	assert.True(t, service.Spec.PublishNotReadyAddresses, "alerts are about servers that are not ready")
	assert.Equal(t, service.Spec.Ports[0].Port, policy.Spec.Ingress[0].Ports[0].Port.IntVal)
	assert.Equal(t, service.Spec.Selector, policy.Spec.PodSelector.MatchLabels)

	server := decode[appsv1.Deployment](t, "base/deployment.yaml")
	assert.Equal(t, service.Spec.Selector, server.Spec.Template.Labels)
	port := slices.IndexFunc(server.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
		return p.Name == service.Spec.Ports[0].TargetPort.StrVal && p.ContainerPort == service.Spec.Ports[0].Port
	})
	assert.GreaterOrEqual(t, port, 0, "the server has no such port")
}

// TestEveryAlertHasAPage: each alert says how bad it is and what it means, and has a page that says what to do.
func TestEveryAlertHasAPage(t *testing.T) {
	rules := decode[monitoringv1.PrometheusRule](t, "monitoring/rules.yaml")
	pages, err := filepath.Glob("../../docs/runbooks/GlobalReserve*.md")
	require.NoError(t, err)
	index, err := os.ReadFile("../../docs/runbooks/README.md")
	require.NoError(t, err)
	alerts := 0
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			alerts++
			assert.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			page := filepath.Join("..", "..", "docs", "runbooks", rule.Alert+".md")
			assert.Contains(t, pages, page)
			assert.Equal(t, "https://github.com/globalreserve/globalreserve/blob/main/docs/runbooks/"+rule.Alert+".md",
				rule.Annotations["runbook_url"])
			assert.Contains(t, string(index), "| ["+rule.Alert+"]("+rule.Alert+".md) | "+rule.Labels["severity"]+" |")
			if content, err := os.ReadFile(page); assert.NoError(t, err) {
				assert.Contains(t, string(content), "# "+rule.Alert+"\n\nSeverity: "+rule.Labels["severity"]+".\n")
			}
		}
	}
	assert.Len(t, pages, alerts, "a page without an alert")
}
