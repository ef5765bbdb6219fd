package main

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// Those of kube-scheduler's own plugins that act between Reserve and Bind: the plugin knows of which pods they do.
var (
	ownPermits  = []string{names.GangScheduling, names.DeferredPodScheduling}
	ownPreBinds = []string{names.VolumeBinding, names.DynamicResources}
)

// waits reports whether a profile has other plugins that may have a pod wait between Reserve and Bind, or do something
// for it there, or whether others than the plugin may bind it. Where that is not known, it may.
func waits(handle fwk.Handle) bool {
	profile, ok := handle.(framework.Framework)
	if !ok {
		return true
	}
	plugins := profile.ListPlugins()
	return beyond(&plugins.Permit, ownPermits) || beyond(&plugins.PreBind, ownPreBinds) ||
		beyond(&plugins.Bind, []string{schedulerplugin.Name}) || slices.ContainsFunc(profile.Extenders(), fwk.Extender.IsBinder)
}

// beyond reports whether a set has plugins that are not in a list.
func beyond(set *config.PluginSet, known []string) bool {
	return slices.ContainsFunc(set.Enabled, func(p config.Plugin) bool { return !slices.Contains(known, p.Name) })
}
