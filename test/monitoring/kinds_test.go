package monitoring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
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

// TestCertificates: what cert-manager is asked for are its kinds, and the server's certificate is of the authority that
// is made beside it, in the Secret that the server reads.
func TestCertificates(t *testing.T) {
	content, err := os.ReadFile(filepath.FromSlash(manifests + "cert-manager/certificate.yaml"))
	require.NoError(t, err)
	issuers, certificates := map[string]certmanagerv1.Issuer{}, map[string]certmanagerv1.Certificate{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "kind: Issuer\nmetadata:") {
			var issuer certmanagerv1.Issuer
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &issuer))
			issuers[issuer.Name] = issuer
			continue
		}
		var certificate certmanagerv1.Certificate
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &certificate))
		require.Equal(t, certmanagerv1.CertificateKind, certificate.Kind)
		certificates[certificate.Name] = certificate
	}
	serving := certificates["globalreserve"]
	authority := certificates[issuers[serving.Spec.IssuerRef.Name].Spec.CA.SecretName]
	assert.True(t, authority.Spec.IsCA)
	assert.NotNil(t, issuers[authority.Spec.IssuerRef.Name].Spec.SelfSigned)
	server := decode[appsv1.Deployment](t, "base/deployment.yaml")
	assert.True(t, slices.ContainsFunc(server.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == serving.Spec.SecretName
	}), "the server does not read the Secret %s", serving.Spec.SecretName)
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
