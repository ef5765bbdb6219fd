package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/certificate"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// all reads the objects of a kind, strictly, by their names.
func all[T any](t *testing.T, objects map[string][][]byte, kind string, name func(*T) string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for _, content := range objects[kind] {
		object := new(T)
		require.NoError(t, yaml.UnmarshalStrict(content, object))
		found[name(object)] = object
	}
	return found
}

func TestSecondScheduler(t *testing.T) {
	cases := map[string]struct {
		mode       schedulerplugin.Mode
		deployment string
		account    string
		replicas   int
		strategy   appsv1.DeploymentStrategyType
	}{
		"second-remote": {schedulerplugin.Remote, "globalreserve-scheduler", "globalreserve-scheduler", 1, appsv1.RecreateDeploymentStrategyType},
		"second-local":  {schedulerplugin.Local, "globalreserve", "globalreserve", 2, appsv1.RollingUpdateDeploymentStrategyType},
	}
	for folder, tc := range cases {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join("scheduler", folder))
			deployment := all(t, objects, "Deployment", func(d *appsv1.Deployment) string { return d.Name })[tc.deployment]
			require.NotNil(t, deployment)
			pod := deployment.Spec.Template.Spec
			assert.EqualValues(t, tc.replicas, *deployment.Spec.Replicas)
			assert.Equal(t, tc.strategy, deployment.Spec.Strategy.Type)
			assert.Equal(t, tc.account, pod.ServiceAccountName)
			assert.Equal(t, corev1.DefaultSchedulerName, pod.SchedulerName, "it could not place itself")
			assert.Equal(t, "globalreserve-scheduler:v0.1.0", pod.Containers[0].Image)
			assert.Equal(t, []string{"--config=/etc/globalreserve-scheduler/config.yaml", "--cert-dir=/tmp"}, pod.Containers[0].Args)
			checkSecurity(t, pod)

			config := all(t, objects, "ConfigMap", func(c *corev1.ConfigMap) string { return c.Name })["globalreserve-scheduler"]
			require.NotNil(t, config)
			checkPluginConfig(t, []byte(config.Data["config.yaml"]), "globalreserve-scheduler", tc.mode, pod)

			roles := map[string]bool{}
			for _, b := range all(t, objects, "ClusterRoleBinding", func(b *rbacv1.ClusterRoleBinding) string { return b.Name }) {
				for _, subject := range b.Subjects {
					if subject.Kind == rbacv1.UserKind {
						continue // the cluster's own scheduler, see ../base
					}
					assert.Equal(t, systemNamespace, subject.Namespace)
					if subject.Name == tc.account {
						roles[b.RoleRef.Name] = true
					}
				}
			}
			assert.True(t, roles["system:kube-scheduler"] && roles["system:volume-scheduler"])
			assert.Equal(t, tc.mode == schedulerplugin.Local, roles["globalreserve"], "the server's rights are for who has the ledger")
			if tc.mode == schedulerplugin.Remote {
				assert.True(t, roles["globalreserve-scheduler"] && roles["globalreserve-use-globalreserve-scheduler"], "to ask the server")
				checkRemoteRole(t, all(t, objects, "ClusterRole", func(r *rbacv1.ClusterRole) string { return r.Name })["globalreserve-remote-scheduler"])
			}
		})
	}
}

// checkRemoteRole checks what a scheduler reads itself whose ledger is elsewhere.
func checkRemoteRole(t *testing.T, role *rbacv1.ClusterRole) {
	t.Helper()
	require.NotNil(t, role)
	assert.Equal(t, []rbacv1.PolicyRule{{
		APIGroups: []string{"globalreserve.io"}, Resources: []string{"reservations", "extendedresourceclaims"},
		Verbs: []string{"get", "list", "watch"},
	}}, role.Rules)
}

// checkPluginConfig checks a configuration of globalreserve-scheduler, of which the plugin itself
// reads its section.
func checkPluginConfig(t *testing.T, content []byte, name string, mode schedulerplugin.Mode, pod corev1.PodSpec) {
	t.Helper()
	var config schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	require.Len(t, config.Profiles, 1)
	profile := config.Profiles[0]
	assert.Equal(t, name, *profile.SchedulerName)
	assert.Equal(t, schedulerplugin.Name, profile.Plugins.MultiPoint.Enabled[0].Name)
	assert.Equal(t, []schedulerv1.Plugin{{Name: schedulerplugin.Name}}, profile.Plugins.Bind.Enabled)
	assert.Equal(t, []schedulerv1.Plugin{{Name: "DefaultBinder"}}, profile.Plugins.Bind.Disabled, "it would be asked first")
	require.Len(t, profile.PluginConfig, 1)
	assert.Empty(t, config.Extenders)
	args, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: profile.PluginConfig[0].Args.Raw})
	require.NoError(t, err)
	assert.Equal(t, mode, args.Mode)
	checkAsMeasured(t, config, args)
	assert.False(t, *config.LeaderElection.LeaderElect, "the plugin elects in mode local, and in mode remote there is one replica")
	if mode == schedulerplugin.Local {
		assert.Equal(t, ":23458", args.Server.PeerAddress, "as the NetworkPolicy has it")
		o := app.DefaultOptions()
		o.BindAddress, o.AllowInsecureHTTP = *args.Server.BindAddress, args.Server.AllowInsecureHTTP
		o.Secure.CertFile, o.Secure.KeyFile = args.Server.TLSCertFile, args.Server.TLSPrivateKeyFile
		o.Secure.Port, o.Secure.ClientCAFile = *args.Server.SecurePort, args.Server.ClientCAFile
		checkTLSOnly(t, &o, pod)
		return
	}
	assert.Equal(t, fmt.Sprintf("https://%s:%d", certificate.ServerName, serverPort), args.RemoteURL)
	assert.Equal(t, "/var/run/secrets/kubernetes.io/serviceaccount/token", args.TokenFile, "which is renewed")
	authority := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })]
	assert.Equal(t, "globalreserve-tls", authority.Secret.SecretName)
	assert.Equal(t, []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}, authority.Secret.Items, "the server's key is not for others")
	assert.True(t, slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == authority.Name && filepath.Join(m.MountPath, "ca.crt") == args.CAFile
	}))
}

// checkAsMeasured shows that a deployed configuration differs from the file of scheduler-config, which the benchmarks
// measure, in names, addresses, secrets and leader election alone.
func checkAsMeasured(t *testing.T, config schedulerv1.KubeSchedulerConfiguration, args *schedulerplugin.Args) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "scheduler-config", "plugin", string(args.Mode)+".yaml"))
	require.NoError(t, err)
	var measured schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &measured))
	same, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: measured.Profiles[0].PluginConfig[0].Args.Raw})
	require.NoError(t, err)
	assert.Equal(t, same.FailurePolicy, args.FailurePolicy)
	assert.Equal(t, same.ReservationTTL, args.ReservationTTL)
	assert.Equal(t, same.IgnoredResources, args.IgnoredResources)
	for _, c := range []*schedulerv1.KubeSchedulerConfiguration{&config, &measured} {
		c.ClientConnection.Kubeconfig, c.LeaderElection.LeaderElect = "", nil
		c.Profiles[0].SchedulerName, c.Profiles[0].PluginConfig = nil, nil
	}
	assert.Equal(t, measured, config)
}

func TestRightsOfTheDefaultScheduler(t *testing.T) {
	objects := load(t, filepath.Join("scheduler", "default"))
	require.NotEmpty(t, objects)
	for _, o := range objects {
		if role, ok := o.(*rbacv1.ClusterRole); ok {
			checkRemoteRole(t, role)
		}
		if binding, ok := o.(*rbacv1.ClusterRoleBinding); ok {
			assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"}}, binding.Subjects)
		}
	}
}
