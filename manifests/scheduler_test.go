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

func TestSecondScheduler(t *testing.T) {
	cases := map[string]struct {
		mode     schedulerplugin.Mode
		account  string // and Deployment
		replicas int
		strategy appsv1.DeploymentStrategyType
	}{
		"second-remote": {schedulerplugin.Remote, "globalreserve-scheduler", 1, appsv1.RecreateDeploymentStrategyType},
		"second-local":  {schedulerplugin.Local, "globalreserve", 2, appsv1.RollingUpdateDeploymentStrategyType},
	}
	for folder, tc := range cases {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join("scheduler", folder))
			deployment := named[*appsv1.Deployment](t, objects, tc.account)
			pod := deployment.Spec.Template.Spec
			assert.EqualValues(t, tc.replicas, *deployment.Spec.Replicas)
			assert.Equal(t, tc.strategy, deployment.Spec.Strategy.Type)
			assert.Equal(t, tc.account, pod.ServiceAccountName)
			assert.Equal(t, corev1.DefaultSchedulerName, pod.SchedulerName, "it could not place itself")
			assert.Equal(t, "globalreserve-scheduler:v0.1.0", pod.Containers[0].Image)
			assert.Equal(t, []string{"--config=/etc/globalreserve-scheduler/config.yaml", "--cert-dir=/tmp"}, pod.Containers[0].Args)
			checkSecurity(t, pod)

			config := named[*corev1.ConfigMap](t, objects, "globalreserve-scheduler").Data["config.yaml"]
			args := checkPluginConfig(t, []byte(config), "globalreserve-scheduler", tc.mode, false)
			checkAsMeasured(t, []byte(config), args)
			if tc.mode == schedulerplugin.Local {
				checkServer(t, args, pod)
			} else {
				checkAuthority(t, args, pod)
			}

			roles := map[string]bool{}
			for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
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
				checkRemoteRole(t, named[*rbacv1.ClusterRole](t, objects, "globalreserve-remote-scheduler"))
			}
		})
	}
}

// checkRemoteRole checks what a scheduler reads itself whose ledger is elsewhere.
func checkRemoteRole(t *testing.T, role *rbacv1.ClusterRole) {
	t.Helper()
	assert.Equal(t, []rbacv1.PolicyRule{{
		APIGroups: []string{"globalreserve.io"}, Resources: []string{"reservations", "extendedresourceclaims"},
		Verbs: []string{"get", "list", "watch"},
	}}, role.Rules)
}

// The configurations for kube-scheduler's place.
func TestPluginConfigs(t *testing.T) {
	for file, mode := range map[string]schedulerplugin.Mode{"local.yaml": schedulerplugin.Local, "remote.yaml": schedulerplugin.Remote} {
		t.Run(file, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("..", "scheduler-config", "plugin", file))
			require.NoError(t, err)
			checkPluginConfig(t, content, corev1.DefaultSchedulerName, mode, mode == schedulerplugin.Remote)
		})
	}
}

// checkPluginConfig checks a configuration of globalreserve-scheduler, of which the plugin itself
// reads its section. In mode local the plugin elects; in mode remote kube-scheduler does, or there is one replica.
func checkPluginConfig(t *testing.T, content []byte, name string, mode schedulerplugin.Mode, elects bool) *schedulerplugin.Args {
	t.Helper()
	var config schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	assert.Equal(t, elects, *config.LeaderElection.LeaderElect)
	assert.Empty(t, config.Extenders, "each pod would be reserved twice over")
	require.Len(t, config.Profiles, 1)
	profile := config.Profiles[0]
	assert.Equal(t, name, *profile.SchedulerName)
	assert.Equal(t, schedulerplugin.Name, profile.Plugins.MultiPoint.Enabled[0].Name)
	assert.Equal(t, []schedulerv1.Plugin{{Name: schedulerplugin.Name}}, profile.Plugins.Bind.Enabled)
	assert.Equal(t, []schedulerv1.Plugin{{Name: "DefaultBinder"}}, profile.Plugins.Bind.Disabled, "it would be asked first")
	require.Len(t, profile.PluginConfig, 1)
	args, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: profile.PluginConfig[0].Args.Raw})
	require.NoError(t, err)
	assert.Equal(t, mode, args.Mode)
	return args
}

// checkAsMeasured shows that a deployed configuration differs from the file of scheduler-config, which the benchmarks
// measure, in names, addresses, secrets and leader election alone.
func checkAsMeasured(t *testing.T, content []byte, args *schedulerplugin.Args) {
	t.Helper()
	var config, measured schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	content, err := os.ReadFile(filepath.Join("..", "scheduler-config", "plugin", string(args.Mode)+".yaml"))
	require.NoError(t, err)
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

// checkServer checks how the server in a scheduler is reached.
func checkServer(t *testing.T, args *schedulerplugin.Args, pod corev1.PodSpec) {
	t.Helper()
	assert.Equal(t, ":23458", args.Server.PeerAddress, "as the NetworkPolicy has it")
	o := app.DefaultOptions()
	o.BindAddress, o.AllowInsecureHTTP = *args.Server.BindAddress, args.Server.AllowInsecureHTTP
	o.Secure.CertFile, o.Secure.KeyFile = args.Server.TLSCertFile, args.Server.TLSPrivateKeyFile
	o.Secure.Port, o.Secure.ClientCAFile = *args.Server.SecurePort, args.Server.ClientCAFile
	checkTLSOnly(t, &o, pod)
}

// checkAuthority checks how a scheduler reaches a server elsewhere.
func checkAuthority(t *testing.T, args *schedulerplugin.Args, pod corev1.PodSpec) {
	t.Helper()
	assert.Equal(t, fmt.Sprintf("https://%s:%d", certificate.ServerName, serverPort), args.RemoteURL)
	assert.Equal(t, "/var/run/secrets/kubernetes.io/serviceaccount/token", args.TokenFile, "which is renewed")
	authority := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })]
	assert.Equal(t, "globalreserve-tls", authority.Secret.SecretName)
	assert.Equal(t, []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}, authority.Secret.Items, "the server's key is not for others")
	assert.True(t, slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == authority.Name && filepath.Join(m.MountPath, "ca.crt") == args.CAFile
	}))
}

func TestRightsOfTheDefaultScheduler(t *testing.T) {
	objects := load(t, filepath.Join("scheduler", "default"))
	require.NotEmpty(t, objects)
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		checkRemoteRole(t, role)
	}
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"}}, binding.Subjects)
	}
}
