package manifests_test

import (
	"os"
	"path/filepath"
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
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

func TestSecondScheduler(t *testing.T) {
	objects := build(t, filepath.Join("scheduler", "second-local"))
	deployment := named[*appsv1.Deployment](t, objects, "globalreserve")
	pod := deployment.Spec.Template.Spec
	assert.EqualValues(t, 2, *deployment.Spec.Replicas)
	assert.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	assert.Equal(t, "globalreserve", pod.ServiceAccountName)
	assert.Equal(t, corev1.DefaultSchedulerName, pod.SchedulerName, "it could not place itself")
	assert.Equal(t, "globalreserve-scheduler:v0.1.0", pod.Containers[0].Image)
	assert.Equal(t, []string{"--config=/etc/globalreserve-scheduler/config.yaml", "--cert-dir=/tmp"},
		pod.Containers[0].Args)
	checkSecurity(t, pod)

	config := named[*corev1.ConfigMap](t, objects, "globalreserve-scheduler").Data["config.yaml"]
	args := checkPluginConfig(t, []byte(config), "globalreserve-scheduler")
	checkAsMeasured(t, []byte(config), args)
	checkServer(t, args, pod)

	roles := map[string]bool{}
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		for _, subject := range b.Subjects {
			if subject.Kind == rbacv1.UserKind {
				continue // the cluster's own scheduler, see ../base
			}
			assert.Equal(t, systemNamespace, subject.Namespace)
			roles[b.RoleRef.Name] = true
		}
	}
	assert.True(t, roles["system:kube-scheduler"] && roles["system:volume-scheduler"])
	assert.True(t, roles["globalreserve"], "it has the ledger")
}

// The configuration for kube-scheduler's place.
func TestPluginConfig(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "scheduler-config", "plugin", "local.yaml"))
	require.NoError(t, err)
	checkPluginConfig(t, content, corev1.DefaultSchedulerName)
}

// checkPluginConfig checks a configuration of globalreserve-scheduler, of which the plugin itself reads its section.
func checkPluginConfig(t *testing.T, content []byte, name string) *schedulerplugin.Args {
	t.Helper()
	var config schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	assert.False(t, *config.LeaderElection.LeaderElect, "the plugin elects")
	assert.Empty(t, config.Extenders, "each pod would be reserved twice over")
	require.Len(t, config.Profiles, 1)
	profile := config.Profiles[0]
	assert.Equal(t, name, *profile.SchedulerName)
	assert.Equal(t, schedulerplugin.Name, profile.Plugins.MultiPoint.Enabled[0].Name)
	assert.Equal(t, []schedulerv1.Plugin{{Name: schedulerplugin.Name}}, profile.Plugins.Bind.Enabled)
	assert.Equal(t, []schedulerv1.Plugin{{Name: "DefaultBinder"}}, profile.Plugins.Bind.Disabled,
		"it would be asked first")
	require.Len(t, profile.PluginConfig, 1)
	args, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: profile.PluginConfig[0].Args.Raw})
	require.NoError(t, err)
	return args
}

// checkAsMeasured shows that a deployed configuration differs from the file of scheduler-config, which the benchmarks
// measure, in names, addresses, secrets and leader election alone.
func checkAsMeasured(t *testing.T, content []byte, args *schedulerplugin.Args) {
	t.Helper()
	var config, measured schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	content, err := os.ReadFile(filepath.Join("..", "scheduler-config", "plugin", "local.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(content, &measured))
	same, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: measured.Profiles[0].PluginConfig[0].Args.Raw})
	require.NoError(t, err)
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

func TestRightsOfTheDefaultScheduler(t *testing.T) {
	objects := load(t, filepath.Join("scheduler", "default"))
	require.NotEmpty(t, objects)
	assert.Empty(t, all[*rbacv1.ClusterRole](objects), "those of the server are enough")
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"}},
			binding.Subjects)
	}
}
