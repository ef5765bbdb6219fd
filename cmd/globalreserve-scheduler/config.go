package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// checkFile refuses a command line whose configuration file cannot work with the ledger in the scheduler.
// kube-scheduler itself reports anything else that is wrong with it.
func checkFile(command *cobra.Command, _ []string) error {
	file := command.Flags().Lookup("config").Value.String()
	if file == "" {
		return nil
	}
	c, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	if flag := command.Flags().Lookup("leader-elect"); flag.Changed { // kube-scheduler prefers it
		c.LeaderElection.LeaderElect = flag.Value.String() == "true"
	}
	if err := checkConfig(c); err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	return nil
}

// checkConfig refuses what would have two elections, or a scheduler that schedules without being elected.
//
// The one election is that of the ledger: the plugin keeps pods out of the queue of a scheduler that
// does not lead. With kube-scheduler's own election beside it one process could schedule while another one has
// the ledger, and no pod would be scheduled. Without it nothing keeps back the pods of a profile that has no plugin.
func checkConfig(c *config.KubeSchedulerConfiguration) error {
	without := ""
	used := false
	for i := range c.Profiles {
		profile := &c.Profiles[i]
		if enabled(profile.Plugins) {
			used = true
		} else {
			without = profile.SchedulerName
		}
		for _, section := range profile.PluginConfig {
			if section.Name != schedulerplugin.Name {
				continue
			}
			used = true
			if _, err := schedulerplugin.ReadArgs(section.Args); err != nil {
				return fmt.Errorf("profile %s: %w", profile.SchedulerName, err)
			}
		}
	}
	switch {
	case !used:
		return nil
	case c.LeaderElection.LeaderElect:
		return fmt.Errorf("plugin %s elects the scheduler that schedules, by the Lease of the ledger: "+
			"set leaderElection.leaderElect to false, or another one could be elected besides, and no pod be scheduled",
			schedulerplugin.Name)
	case without != "":
		return fmt.Errorf("profile %s does not have the plugin %s, which elects the scheduler that schedules: "+
			"enable it under multiPoint in all profiles", without, schedulerplugin.Name)
	default:
		return nil
	}
}

// enabled reports whether the plugin keeps back the pods of a profile.
func enabled(plugins *config.Plugins) bool {
	names := func(name string) func(config.Plugin) bool {
		return func(p config.Plugin) bool { return p.Name == name }
	}
	own := names(schedulerplugin.Name)
	if plugins == nil {
		return false
	}
	return slices.ContainsFunc(plugins.PreEnqueue.Enabled, own) || slices.ContainsFunc(plugins.MultiPoint.Enabled, own) &&
		!slices.ContainsFunc(plugins.PreEnqueue.Disabled, own) && !slices.ContainsFunc(plugins.PreEnqueue.Disabled,
		names("*"))
}
