package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/server/admission"
)

// build does what kubectl kustomize does with a folder and returns the objects by kind.
func build(t *testing.T, folder string) map[string][][]byte {
	t.Helper()
	// Names in kustomizations are resolved in the real file system.
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	objects := map[string][][]byte{}
	for _, r := range resources.Resources() {
		content, err := r.AsYAML()
		require.NoError(t, err)
		objects[r.GetKind()] = append(objects[r.GetKind()], content)
	}
	return objects
}

// only reads the one object of a kind, strictly.
func only[T any](t *testing.T, objects map[string][][]byte, kind string) *T {
	t.Helper()
	require.Len(t, objects[kind], 1, kind)
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict(objects[kind][0], object))
	return object
}

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
			configuration := only[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration")
			assert.Equal(t, tc.annotations, configuration.Annotations)
			require.Len(t, configuration.Webhooks, 3)
			service := only[corev1.Service](t, objects, "Service")
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
			requireClaimsWebhook(t, objects, tc.policy, tc.annotations)
			account := "system:serviceaccount:" + systemNamespace + ":" + only[corev1.ServiceAccount](t, objects, "ServiceAccount").Name
			assert.Contains(t, configuration.Webhooks[0].MatchConditions[0].Expression, `"`+account+`"`)
		})
	}
}

// requireClaimsWebhook looks at the webhook that decides who is given DRA devices. It leaves no namespace out: a device that
// is given without asking may be given twice.
func requireClaimsWebhook(
	t *testing.T, objects map[string][][]byte, policy admissionregistrationv1.FailurePolicyType, annotations map[string]string,
) {
	t.Helper()
	configuration := only[admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration")
	assert.Equal(t, annotations, configuration.Annotations)
	require.Len(t, configuration.Webhooks, 1)
	w, service := configuration.Webhooks[0], only[corev1.Service](t, objects, "Service")
	assert.Equal(t, policy, *w.FailurePolicy)
	assert.Equal(t, admissionregistrationv1.SideEffectClassNoneOnDryRun, *w.SideEffects)
	assert.Equal(t, admissionregistrationv1.Equivalent, *w.MatchPolicy)
	assert.Nil(t, w.NamespaceSelector)
	assert.Equal(t, []string{"resourceclaims/status"}, w.Rules[0].Resources)
	assert.Equal(t, admission.ResourceClaimsPath, *w.ClientConfig.Service.Path)
	assert.Equal(t, service.Name, w.ClientConfig.Service.Name)
	assert.Equal(t, service.Namespace, w.ClientConfig.Service.Namespace)
}

func TestAdmissionReadmeNamesTheFolders(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("admission", "README.md"))
	require.NoError(t, err)
	folders, err := filepath.Glob(filepath.Join("admission", "*", "kustomization.yaml"))
	require.NoError(t, err)
	for _, folder := range folders {
		assert.Contains(t, string(content), "`"+filepath.Base(filepath.Dir(folder))+"/`")
	}
}

// The overlay of one replica differs from the base in that alone.
func TestSingle(t *testing.T) {
	single, base := build(t, "single"), build(t, "base")
	deployment := only[appsv1.Deployment](t, single, "Deployment")
	assert.EqualValues(t, 1, *deployment.Spec.Replicas)
	assert.Equal(t, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, deployment.Spec.Strategy)
	two := only[appsv1.Deployment](t, base, "Deployment")
	assert.Equal(t, two.Spec.Template, deployment.Spec.Template)
	delete(single, "Deployment")
	delete(base, "Deployment")
	assert.Equal(t, base, single)
}

// Whatever is applied comes with what keeps late and foreign writes out.
func TestEveryOverlayHasThePolicies(t *testing.T) {
	folders := []string{"base", "single", "scheduler/second-local", "scheduler/second-remote"}
	overlays, err := filepath.Glob(filepath.Join("admission", "*", "kustomization.yaml"))
	require.NoError(t, err)
	for _, file := range overlays {
		folders = append(folders, filepath.Dir(file))
	}
	for _, folder := range folders {
		objects := build(t, folder)
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			policies := string(bytes.Join(objects[kind], nil))
			for _, name := range []string{"globalreserve-fence", "globalreserve-records", "globalreserve-privileges", "globalreserve-nodes", "globalreserve-podgroups"} {
				assert.Contains(t, policies, "  name: "+name+"\n", folder)
			}
		}
	}
}
