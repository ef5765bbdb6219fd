// Package pluginconfig_test checks the configurations in this folder: that each decodes strictly into
// kube-scheduler's own types, and that the plugin takes its section.
package pluginconfig_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

func TestConfigurations(t *testing.T) {
	for file, mode := range map[string]schedulerplugin.Mode{
		"local.yaml": schedulerplugin.Local, "remote.yaml": schedulerplugin.Remote,
	} {
		t.Run(file, func(t *testing.T) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			var config schedulerv1.KubeSchedulerConfiguration
			require.NoError(t, yaml.UnmarshalStrict(content, &config))
			require.Len(t, config.Profiles, 1)
			plugins := config.Profiles[0].Plugins
			assert.Equal(t, schedulerplugin.Name, plugins.MultiPoint.Enabled[0].Name)
			assert.Equal(t, []schedulerv1.Plugin{{Name: schedulerplugin.Name}}, plugins.Bind.Enabled)
			assert.Equal(t, []schedulerv1.Plugin{{Name: "DefaultBinder"}}, plugins.Bind.Disabled, "it would be asked first")
			assert.Empty(t, config.Extenders, "each pod would be reserved twice over")
			require.Len(t, config.Profiles[0].PluginConfig, 1)
			args, err := schedulerplugin.ReadArgs(&runtime.Unknown{Raw: config.Profiles[0].PluginConfig[0].Args.Raw})
			require.NoError(t, err)
			assert.Equal(t, mode, args.Mode)
			assert.Equal(t, mode == schedulerplugin.Remote, *config.LeaderElection.LeaderElect, "in mode local the plugin elects")
		})
	}
}
