package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// profile has a list of plugins, and extenders.
type profile struct {
	framework.Framework
	plugins   config.Plugins
	extenders []fwk.Extender
}

func (p profile) ListPlugins() *config.Plugins { return &p.plugins }
func (p profile) Extenders() []fwk.Extender    { return p.extenders }

// extender binds, or not.
type extender struct {
	fwk.Extender
	binds bool
}

func (e extender) IsBinder() bool { return e.binds }

// With a plugin in a profile that may have pods wait, or bind them past this one, capacity is taken at the server before that.
func TestWaits(t *testing.T) {
	set := func(all ...string) (s config.PluginSet) {
		for _, name := range all {
			s.Enabled = append(s.Enabled, config.Plugin{Name: name})
		}
		return s
	}
	for name, tc := range map[string]struct {
		handle fwk.Handle
		want   bool
	}{
		"none":                         {profile{}, false},
		"kube-scheduler's own":         {profile{plugins: config.Plugins{Permit: set(names.GangScheduling), PreBind: set(names.VolumeBinding, names.DynamicResources)}}, false},
		"a gang plugin":                {profile{plugins: config.Plugins{Permit: set(names.GangScheduling, "Coscheduling")}}, true},
		"a plugin that prepares nodes": {profile{plugins: config.Plugins{PreBind: set("Fabric")}}, true},
		"the plugin binds":             {profile{plugins: config.Plugins{Bind: set(schedulerplugin.Name)}}, false},
		"others bind as well":          {profile{plugins: config.Plugins{Bind: set(names.DefaultBinder, schedulerplugin.Name)}}, true},
		"an extender":                  {profile{extenders: []fwk.Extender{extender{}}}, false},
		"an extender that binds":       {profile{extenders: []fwk.Extender{extender{}, extender{binds: true}}}, true},
		"not known":                    {nil, true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, waits(tc.handle)) })
	}
}
