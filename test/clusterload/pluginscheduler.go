package clusterload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// PluginSchedulerOptions says how to run bin/globalreserve-scheduler with a configuration of scheduler-config/plugin,
// as kube-scheduler's own user with the rights of manifests/scheduler/default.
type PluginSchedulerOptions struct {
	// Name is the name of the part, SchedulerName the schedulerName of its pods. Default:
	// globalreserve-scheduler, and Name.
	Name, SchedulerName string
	// Args are put into the plugin's args.
	Args map[string]any
	// ServerArgs are put into the args of the server in it.
	ServerArgs map[string]any
	// Change changes the configuration before it is used; nil leaves it.
	Change func(config map[string]any)
}

// PluginScheduler is a running globalreserve-scheduler. It ends with its control plane.
type PluginScheduler struct {
	*controlplane.Process
	// URL is where it serves GlobalReserve.
	URL string
}

// StartPluginScheduler starts a globalreserve-scheduler, and returns when its ledger is ready to decide.
func StartPluginScheduler(ctx context.Context, cp *controlplane.ControlPlane,
	o PluginSchedulerOptions,
) (*PluginScheduler, error) {
	o.Name = cmp.Or(o.Name, "globalreserve-scheduler")
	path, err := program("globalreserve-scheduler", "scheduler")
	if err != nil {
		return nil, err
	}
	for _, right := range []string{"base/rbac.yaml", "scheduler/default/rbac-local.yaml"} {
		if err := grant(ctx, cp, right); err != nil {
			return nil, err
		}
	}
	port, err := cp.FreePort()
	if err != nil {
		return nil, err
	}
	s := &PluginScheduler{URL: "http://127.0.0.1:" + strconv.Itoa(port)}
	server := map[string]any{"port": port}
	maps.Copy(server, o.ServerArgs)
	args := map[string]any{"server": server}
	maps.Copy(args, o.Args)
	config, err := pluginConfig(cmp.Or(o.SchedulerName, o.Name), args, o.Change)
	if err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", o.Name, err)
	}
	err = cp.RunScheduler(ctx, controlplane.SchedulerOptions{
		Name: o.Name, Config: config, Path: path,
		LeaderElection: true, // as it is shipped: none but that of the ledger
	})
	if err != nil {
		return nil, err
	}
	if s.Process, err = cp.Process(o.Name); err != nil {
		return nil, err
	}
	if err := s.AwaitReady(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// AwaitReady returns when the ledger in the scheduler can decide.
func (s *PluginScheduler) AwaitReady(ctx context.Context) error {
	return controlplane.Await(ctx, "the ledger in "+s.Name()+" can decide", controlplane.HTTPReady(s.URL+"/readyz", nil))
}

// pluginConfig returns scheduler-config/plugin/local.yaml for a scheduler of another name, with the given args besides
// those of the file.
func pluginConfig(name string, args map[string]any, change func(map[string]any)) ([]byte, error) {
	config, err := schedulerConfig("plugin", "local.yaml")
	if err != nil {
		return nil, err
	}
	for _, p := range config["profiles"].([]any) {
		profile := p.(map[string]any)
		profile["schedulerName"] = name
		for _, c := range profile["pluginConfig"].([]any) {
			maps.Copy(c.(map[string]any)["args"].(map[string]any), args)
		}
	}
	if change != nil {
		change(config)
	}
	return yaml.Marshal(config)
}
