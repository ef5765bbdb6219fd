// Package schedulerconfig_test checks the example configurations in this folder: that each decodes
// strictly into kube-scheduler's own types, and that the settings on which safety rests are there.
package schedulerconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

const serverURL = "http://127.0.0.1:23456"

func TestConfigurations(t *testing.T) {
	cases := map[string]struct {
		schedulerNames []string
		lease          string
		managed        []schedulerv1.ExtenderManagedResource
		tls            bool
		packs          bool
	}{
		"default-scheduler.yaml":     {schedulerNames: []string{"default-scheduler"}},
		"default-scheduler-tls.yaml": {schedulerNames: []string{"default-scheduler"}, tls: true},
		"second-scheduler.yaml":      {schedulerNames: []string{"second-scheduler"}, lease: "second-scheduler"},
		"two-profiles.yaml":          {schedulerNames: []string{"default-scheduler", "packing-scheduler"}, packs: true},
		"extended-resource-scheduler.yaml": {
			schedulerNames: []string{"extended-resource-scheduler"}, lease: "extended-resource-scheduler",
		},
		"managed-resources.yaml": {
			schedulerNames: []string{"default-scheduler"},
			managed:        []schedulerv1.ExtenderManagedResource{{Name: "globalreserve.io/devices", IgnoredByScheduler: true}},
		},
	}
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	assert.Len(t, files, len(cases), "every configuration in the folder is checked")

	for file, want := range cases {
		t.Run(file, func(t *testing.T) {
			config := decode(t, file)
			assert.Equal(t, schedulerv1.SchemeGroupVersion.String(), config.APIVersion)
			assert.Equal(t, "KubeSchedulerConfiguration", config.Kind)
			assert.Equal(t, want.lease, config.LeaderElection.ResourceName)
			require.NotNil(t, config.PercentageOfNodesToScore)
			assert.EqualValues(t, 2, *config.PercentageOfNodesToScore, "the server finds what a small sample misses")

			names := make([]string, 0, len(config.Profiles))
			for _, profile := range config.Profiles {
				require.NotNil(t, profile.SchedulerName)
				names = append(names, *profile.SchedulerName)
			}
			assert.Equal(t, want.schedulerNames, names)

			require.Len(t, config.Extenders, 1)
			checkExtender(t, config.Extenders[0], want.tls, want.packs)
			assert.Equal(t, want.managed, config.Extenders[0].ManagedResources, "every other pod has to pass the ledger")
		})
	}
}

// decode reads a configuration and fails the test for a field the type does not have. The plugin
// arguments within are raw, so they are decoded on their own.
func decode(t *testing.T, file string) schedulerv1.KubeSchedulerConfiguration {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var config schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &config))
	for _, profile := range config.Profiles {
		for _, plugin := range profile.PluginConfig {
			require.Equal(t, "NodeResourcesFit", plugin.Name, "add the arguments' type to this test")
			var args schedulerv1.NodeResourcesFitArgs
			require.NoError(t, yaml.UnmarshalStrict(plugin.Args.Raw, &args))
			assert.Equal(t, "NodeResourcesFitArgs", args.Kind)
		}
	}
	return config
}

func checkExtender(t *testing.T, extender schedulerv1.Extender, tls, packs bool) {
	t.Helper()
	assert.Equal(t, tls, extender.EnableHTTPS)
	if !tls {
		assert.Equal(t, serverURL, extender.URLPrefix)
	}
	assert.Equal(t, "filter", extender.FilterVerb)
	if packs {
		assert.Equal(t, "prioritize", extender.PrioritizeVerb)
		assert.Positive(t, extender.Weight, "kube-scheduler refuses a prioritize verb without a weight")
	} else {
		assert.Empty(t, extender.PrioritizeVerb, "filter prefers what is reserved")
		assert.Zero(t, extender.Weight)
	}
	assert.Equal(t, "preempt", extender.PreemptVerb)
	assert.Equal(t, "bind", extender.BindVerb)
	assert.False(t, extender.Ignorable, "a refused bind must not fall through to the default binder")
	assert.True(t, extender.NodeCacheCapable)
	assert.Greater(t, extender.HTTPTimeout.Duration, 5*time.Second, "a bind needs more than the default")
	if extender.EnableHTTPS {
		require.NotNil(t, extender.TLSConfig)
		assert.NotEmpty(t, extender.TLSConfig.CAFile, "without a CA the certificate is not verified")
		assert.Equal(t, "https://"+extender.TLSConfig.ServerName+":23456", extender.URLPrefix)
		assert.NotEmpty(t, extender.TLSConfig.CertFile, "it has no other way to say who it is")
		assert.NotEmpty(t, extender.TLSConfig.KeyFile)
	}
}

// The example's Deployment carries the configuration in a ConfigMap. There it reaches the server by the
// Service, and the API server as a pod does.
func TestDeployedConfigurationIsTheSame(t *testing.T) {
	content, err := os.ReadFile("../examples/extended-resources/scheduler.yaml")
	require.NoError(t, err)
	document, _, _ := strings.Cut(string(content), "\n---\n")
	var configMap struct{ Data map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(document), &configMap))
	var deployed schedulerv1.KubeSchedulerConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(configMap.Data["config.yaml"]), &deployed))

	want := decode(t, "extended-resource-scheduler.yaml")
	want.ClientConnection.Kubeconfig = ""
	over := decode(t, "default-scheduler-tls.yaml").Extenders[0]
	want.Extenders[0].URLPrefix, want.Extenders[0].EnableHTTPS, want.Extenders[0].TLSConfig = over.URLPrefix, true,
		over.TLSConfig
	assert.Equal(t, want, deployed)
}
