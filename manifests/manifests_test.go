// Package manifests_test checks the manifests in this folder: that each decodes strictly into the
// Kubernetes type it names, and that rights, security settings and ports stay what they must be.
package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	systemNamespace = "globalreserve-system"
	serverPort      = 23456
	peerPort        = 23458
	healthPort      = 23459
)

// foreign are the kinds of others, which client-go cannot decode: test/crd applies the definitions.
var foreign = []string{"CustomResourceDefinition", "Certificate", "Issuer"}

// build does what kubectl kustomize does with a folder.
func build(t *testing.T, folder string) []metav1.Object {
	t.Helper()
	// Names in kustomizations are resolved in the real file system.
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	content, err := resources.AsYaml()
	require.NoError(t, err)
	return decode(t, folder, content)
}

// load reads the files of a folder that has no kustomization.
func load(t *testing.T, folder string) []metav1.Object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var objects []metav1.Object
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		objects = append(objects, decode(t, file, content)...)
	}
	return objects
}

// decode reads objects strictly: an unknown kind or field fails the test.
func decode(t *testing.T, from string, content []byte) (objects []metav1.Object) {
	t.Helper()
	documents, err := controlplane.Documents(content)
	require.NoError(t, err, from)
	for _, document := range documents {
		if slices.Contains(foreign, document.GetKind()) {
			continue
		}
		object, err := scheme.Scheme.New(document.GroupVersionKind())
		require.NoError(t, err, from)
		convert := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
		require.NoError(t, convert(document.Object, object, true), from)
		objects = append(objects, object.(metav1.Object))
	}
	return objects
}

// all returns the objects of a type.
func all[T metav1.Object](objects []metav1.Object) []T {
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// one returns the only object of a type.
func one[T metav1.Object](t *testing.T, objects []metav1.Object) T {
	t.Helper()
	found := all[T](objects)
	require.Len(t, found, 1)
	return found[0]
}

// named returns the object of a type and a name.
func named[T metav1.Object](t *testing.T, objects []metav1.Object, name string) T {
	t.Helper()
	kept := slices.DeleteFunc(slices.Clone(objects), func(object metav1.Object) bool { return object.GetName() != name })
	return one[T](t, kept)
}

func TestKustomizationsNameEveryFile(t *testing.T) {
	for folder, others := range map[string][]string{"base": {"../crd"}, "crd": nil} {
		t.Run(folder, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
			require.NoError(t, err)
			var kustomization struct {
				Resources []string `json:"resources"`
			}
			require.NoError(t, yaml.Unmarshal(content, &kustomization))

			files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
			require.NoError(t, err)
			want := others
			for _, file := range files {
				if name := filepath.Base(file); name != "kustomization.yaml" {
					want = append(want, name)
				}
			}
			assert.ElementsMatch(t, want, kustomization.Resources)
		})
	}
}

func TestEverythingIsInTheNamespace(t *testing.T) {
	objects := build(t, "base")
	assert.Equal(t, systemNamespace, one[*corev1.Namespace](t, objects).Name)
	for _, object := range objects {
		switch object.(type) {
		case *corev1.Namespace, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding,
			*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding, *flowcontrolv1.FlowSchema,
			*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding:
			assert.Empty(t, object.GetNamespace(), object.GetName())
		case *rbacv1.Role, *rbacv1.RoleBinding: // of the Lease
			assert.Equal(t, app.DefaultOptions().Election.Namespace, object.GetNamespace(), object.GetName())
		default:
			assert.Equal(t, systemNamespace, object.GetNamespace(), object.GetName())
		}
	}
}

func TestDeployment(t *testing.T) {
	objects := build(t, "base")
	deployment := one[*appsv1.Deployment](t, objects)
	pod := deployment.Spec.Template.Spec

	assert.Equal(t, new(int32(2)), deployment.Spec.Replicas)
	assert.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	assert.Zero(t, deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(), "one that can decide is always there")
	labels := deployment.Spec.Template.Labels
	apart := pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	assert.Equal(t, labels, apart[0].PodAffinityTerm.LabelSelector.MatchLabels)
	assert.Equal(t, labels, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
	assert.Equal(t, one[*corev1.ServiceAccount](t, objects).Name, pod.ServiceAccountName)
	assert.Equal(t, new(true), pod.AutomountServiceAccountToken)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	assert.Equal(t, corev1.DefaultSchedulerName, pod.SchedulerName)
	checkServerPod(t, pod)
}

// Whatever is applied comes with what keeps late and foreign writes out. It gives no rights by what kubelets, or all
// callers, have in common: a certificate of the cluster's authority gives nothing by itself. And it serves nobody by
// plain HTTP, which only a static pod does, on loopback.
func TestEveryOverlay(t *testing.T) {
	overlays, err := filepath.Glob(filepath.Join("admission", "*", "kustomization.yaml"))
	require.NoError(t, err)
	folders := []string{"base", "single", "scheduler/second-local"}
	for _, file := range overlays {
		folders = append(folders, filepath.Dir(file))
	}
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, folder)
			for _, name := range []string{
				election.FenceName, "globalreserve-records", "globalreserve-privileges", "globalreserve-servers",
			} {
				named[*admissionv1.ValidatingAdmissionPolicy](t, objects, name)
				named[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, name)
			}
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				for _, subject := range binding.Subjects {
					assert.NotEqual(t, rbacv1.GroupKind, subject.Kind, binding.Name)
				}
			}
			pod := named[*appsv1.Deployment](t, objects, "globalreserve").Spec.Template.Spec
			if folder == "scheduler/second-local" {
				return // the plugin has the options, see checkPluginConfig
			}
			options := parseArgs(t, pod.Containers[0].Args)
			checkTLSOnly(t, &options, pod)
		})
	}
}

// checkTLSOnly checks that a server serves TLS alone, with the certificate in the one Secret, on the port of the
// Service.
func checkTLSOnly(t *testing.T, o *app.Options, pod corev1.PodSpec) {
	t.Helper()
	assert.Empty(t, o.BindAddress, "plain HTTP, on loopback neither: a port may be forwarded to it")
	assert.False(t, o.AllowInsecureHTTP)
	assert.Equal(t, serverPort, o.Secure.Port)
	assert.Equal(t, "0.0.0.0", o.Secure.BindAddress)
	assert.Equal(t, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", o.Secure.ClientCAFile)
	volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })]
	assert.Equal(t, "globalreserve-tls", volume.Secret.SecretName)
	mounts := pod.Containers[0].VolumeMounts
	mount := mounts[slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })]
	assert.Empty(t, mount.SubPath, "a file mounted alone is never renewed")
	assert.Equal(t, filepath.Join(mount.MountPath, corev1.TLSCertKey), o.Secure.CertFile)
	assert.Equal(t, filepath.Join(mount.MountPath, corev1.TLSPrivateKeyKey), o.Secure.KeyFile)
}

// The Secret that the server mounts is the one that both ways make; package certificate has the other one.
func TestCertificate(t *testing.T) {
	issued, err := os.ReadFile(filepath.Join("cert-manager", "certificate.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(issued), "secretName: globalreserve-tls\n")
	assert.Contains(t, string(issued), "- globalreserve.globalreserve-system.svc\n")
}

func TestPolicyIsMounted(t *testing.T) {
	objects := build(t, "base")
	pod := one[*appsv1.Deployment](t, objects).Spec.Template.Spec
	config := one[*corev1.ConfigMap](t, objects)
	require.NotNil(t, pod.Volumes[0].ConfigMap)
	assert.Equal(t, config.Name, pod.Volumes[0].ConfigMap.Name)
	mount := pod.Containers[0].VolumeMounts[0]
	assert.Equal(t, pod.Volumes[0].Name, mount.Name)
	assert.Empty(t, mount.SubPath, "a file mounted alone is never renewed")
	require.Len(t, config.Data, 1)
	for file, content := range config.Data {
		assert.Contains(t, pod.Containers[0].Args, "--policy-file="+mount.MountPath+"/"+file)
		_, err := policy.Parse([]byte(content))
		require.NoError(t, err, file)
	}
}

func TestServiceReachesThePod(t *testing.T) {
	objects := build(t, "base")
	service := one[*corev1.Service](t, objects)
	template := one[*appsv1.Deployment](t, objects).Spec.Template

	assert.Equal(t, template.Labels, service.Spec.Selector)
	require.Len(t, service.Spec.Ports, 1)
	assert.EqualValues(t, serverPort, service.Spec.Ports[0].Port)
	require.Len(t, template.Spec.Containers[0].Ports, 3)
	assert.EqualValues(t, peerPort, template.Spec.Containers[0].Ports[1].ContainerPort)
	assert.Contains(t, template.Spec.Containers[0].Args, fmt.Sprintf("--peer-address=:%d", peerPort))
	health := template.Spec.Containers[0].Ports[2]
	assert.EqualValues(t, healthPort, health.ContainerPort)
	assert.Contains(t, template.Spec.Containers[0].Args, fmt.Sprintf("--health-address=:%d", healthPort))
	for _, probe := range []*corev1.Probe{
		template.Spec.Containers[0].LivenessProbe,
		template.Spec.Containers[0].ReadinessProbe,
	} {
		assert.Equal(t, health.Name, probe.HTTPGet.Port.StrVal, "where decisions cannot be in their way")
	}
	assert.Equal(t, template.Spec.Containers[0].Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
	assert.EqualValues(t, serverPort, template.Spec.Containers[0].Ports[0].ContainerPort)
	assert.Equal(t, template.Labels, one[*policyv1.PodDisruptionBudget](t, objects).Spec.Selector.MatchLabels)
}

func TestNetworkPolicyClosesThePort(t *testing.T) {
	objects := build(t, "base")
	network := one[*networkingv1.NetworkPolicy](t, objects)
	template := one[*appsv1.Deployment](t, objects).Spec.Template

	assert.Equal(t, template.Labels, network.Spec.PodSelector.MatchLabels)
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, network.Spec.PolicyTypes)
	require.Len(t, network.Spec.Ingress, 2)
	for i, port := range []int{serverPort, peerPort} {
		rule := network.Spec.Ingress[i]
		assert.NotEmpty(t, rule.From, "a rule without From lets everybody in")
		require.Len(t, rule.Ports, 1)
		assert.Equal(t, port, rule.Ports[0].Port.IntValue())
		for _, peer := range rule.From {
			if port == peerPort && peer.PodSelector != nil {
				assert.Nil(t, peer.NamespaceSelector)
				assert.Equal(t, template.Labels, peer.PodSelector.MatchLabels)
				continue
			}
			require.NotNil(t, peer.NamespaceSelector)
			assert.Equal(t, map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem},
				peer.NamespaceSelector.MatchLabels)
		}
	}
}

func TestStaticPodListensOnLoopback(t *testing.T) {
	const file = "static-pod/globalreserve.yaml"
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pod := one[*corev1.Pod](t, decode(t, file, content)).Spec
	assert.True(t, pod.HostNetwork, "loopback of the host, where the scheduler is")
	assert.Empty(t, pod.ServiceAccountName, "a static pod has none")
	checkServerPod(t, pod)

	args := pod.Containers[0].Args
	assert.Contains(t, args, "--bind-address=127.0.0.1")
	assert.Contains(t, args, "--port=23456")
	assert.NotContains(t, args, "--allow-insecure-http")
	for _, probe := range []*corev1.Probe{pod.Containers[0].LivenessProbe, pod.Containers[0].ReadinessProbe} {
		assert.Equal(t, "127.0.0.1", probe.HTTPGet.Host)
		assert.Equal(t, healthPort, probe.HTTPGet.Port.IntValue())
	}
	assert.Contains(t, args, fmt.Sprintf("--health-address=127.0.0.1:%d", healthPort))
}

// checkSecurity checks that a pod has no more rights on its node than it needs.
func checkSecurity(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	require.NotNil(t, pod.SecurityContext)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.EqualValues(t, 65532, *pod.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)

	require.Len(t, pod.Containers, 1)
	container := pod.Containers[0]
	require.NotNil(t, container.SecurityContext)
	assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	assert.Empty(t, container.SecurityContext.Capabilities.Add)
	assert.NotEmpty(t, container.Resources.Requests)
}

// checkServerPod checks what holds for the server wherever it runs.
func checkServerPod(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	checkSecurity(t, pod)
	container := pod.Containers[0]
	assert.Equal(t, "/livez", container.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)
	parseArgs(t, container.Args)
}

// parseArgs reads a command line as the server does, which would not start with another one.
func parseArgs(t *testing.T, args []string) app.Options {
	t.Helper()
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	options := app.DefaultOptions()
	options.AddFlags(flags)
	require.NoError(t, flags.Parse(args))
	require.NoError(t, options.Validate())
	return options
}
