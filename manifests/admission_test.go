package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/http/admission"
)

func TestWebhookConfigurations(t *testing.T) {
	exempt := []string{"kube-system", systemNamespace}
	cases := map[string]struct {
		policy      admissionregistrationv1.FailurePolicyType
		exempt      []string
		annotations map[string]string
	}{
		"base":   {policy: admissionregistrationv1.Fail, exempt: exempt},
		"ignore": {policy: admissionregistrationv1.Ignore, exempt: exempt},
		"cert-manager": {
			policy: admissionregistrationv1.Fail, exempt: append(slices.Clone(exempt), "cert-manager"),
			annotations: map[string]string{"cert-manager.io/inject-ca-from": systemNamespace + "/globalreserve"},
		},
	}
	for folder, tc := range cases {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join("admission", folder))
			configuration := one[*admissionregistrationv1.MutatingWebhookConfiguration](t, objects)
			assert.Equal(t, tc.annotations, configuration.Annotations)
			require.Len(t, configuration.Webhooks, 3)
			service := one[*corev1.Service](t, objects)
			for _, w := range configuration.Webhooks {
				assert.Equal(t, tc.policy, *w.FailurePolicy)
				assert.Equal(t, admissionregistrationv1.SideEffectClassNoneOnDryRun, *w.SideEffects)
				assert.Equal(t, admissionregistrationv1.IfNeededReinvocationPolicy, *w.ReinvocationPolicy)
				assert.Equal(t, []string{"v1"}, w.AdmissionReviewVersions)
				assert.Equal(t, tc.exempt, w.NamespaceSelector.MatchExpressions[0].Values)
				reference := w.ClientConfig.Service
				assert.Equal(t, service.Name, reference.Name)
				assert.Equal(t, service.Namespace, reference.Namespace)
				assert.Equal(t, admission.Path, *reference.Path)
				assert.True(t, slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
					return p.Port == *reference.Port && p.TargetPort.StrVal == "https"
				}))
			}
			pods, created := configuration.Webhooks[1], checkValidating(t, objects, "zz-globalreserve", tc.policy,
				tc.annotations)
			assert.Equal(t, admission.PodsPath, *created.ClientConfig.Service.Path)
			assert.Equal(t, pods.Rules, created.Rules)
			assert.Equal(t, pods.MatchConditions, created.MatchConditions, "what is planned is decided on, and nothing else")
			assert.Equal(t, pods.NamespaceSelector, created.NamespaceSelector)
			claims := checkValidating(t, objects, "globalreserve", tc.policy, tc.annotations)
			assert.Equal(t, admissionregistrationv1.Equivalent, *claims.MatchPolicy)
			assert.Nil(t, claims.NamespaceSelector, "a device that is given without asking may be given twice")
			assert.Equal(t, []string{"resourceclaims/status"}, claims.Rules[0].Resources)
			assert.Equal(t, admission.ResourceClaimsPath, *claims.ClientConfig.Service.Path)
			account := "system:serviceaccount:" + systemNamespace + ":" + one[*corev1.ServiceAccount](t, objects).Name
			assert.Contains(t, configuration.Webhooks[0].MatchConditions[0].Expression, `"`+account+`"`)
		})
	}
}

// checkValidating looks at what the validating webhooks have in common, and returns the one of a configuration.
func checkValidating(
	t *testing.T, objects []metav1.Object, name string, policy admissionregistrationv1.FailurePolicyType,
	annotations map[string]string,
) admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	configuration := named[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, name)
	assert.Equal(t, annotations, configuration.Annotations)
	require.Len(t, configuration.Webhooks, 1)
	w, service := configuration.Webhooks[0], one[*corev1.Service](t, objects)
	assert.Equal(t, policy, *w.FailurePolicy)
	assert.Equal(t, admissionregistrationv1.SideEffectClassNoneOnDryRun, *w.SideEffects)
	assert.Equal(t, service.Name, w.ClientConfig.Service.Name)
	assert.Equal(t, service.Namespace, w.ClientConfig.Service.Namespace)
	return w
}

// The overlay of one replica differs from the base in that alone.
func TestSingle(t *testing.T) {
	single, base := build(t, "single"), build(t, "base")
	deployment := one[*appsv1.Deployment](t, single)
	assert.EqualValues(t, 1, *deployment.Spec.Replicas)
	assert.Equal(t, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, deployment.Spec.Strategy)
	two := one[*appsv1.Deployment](t, base)
	deployment.Spec.Replicas, deployment.Spec.Strategy = two.Spec.Replicas, two.Spec.Strategy
	assert.Equal(t, base, single)
}

// The API server shows its certificate to the webhooks only where the user in its kubeconfig has the name of the
// Service and the port (apiserver pkg/util/webhook, ClientConfigForService).
func TestUserOfTheAPIServer(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("admission", "README.md"))
	require.NoError(t, err)
	for _, configuration := range all[*admissionregistrationv1.ValidatingWebhookConfiguration](build(t,
		filepath.Join("admission", "base"))) {
		s := configuration.Webhooks[0].ClientConfig.Service
		assert.Contains(t, string(content), fmt.Sprintf("    users:\n    - name: %s.%s.svc:%d\n", s.Name, s.Namespace,
			*s.Port))
	}
}
