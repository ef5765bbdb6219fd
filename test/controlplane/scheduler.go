package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const schedulerUser = "system:kube-scheduler"

// Client limits for a scheduler whose configuration sets none. kube-scheduler's own default of 50
// requests per second is far below what it can decide.
const (
	schedulerQPS   = 5000
	schedulerBurst = 10000
)

// StartScheduler starts a kube-scheduler with a KubeSchedulerConfiguration (v1, YAML or JSON). An empty configuration
// means one profile with the scheduler's own name. The harness fills in what belongs to it: the kubeconfig and the
// client limits unless the configuration gives them, and leader election off unless it is asked for.
func (c *ControlPlane) StartScheduler(ctx context.Context, name string, config []byte) error {
	return c.RunScheduler(ctx, SchedulerOptions{Name: name, Config: config})
}

// SchedulerOptions says how to run a scheduler with kube-scheduler's command line.
type SchedulerOptions struct {
	// Name is the name of the part.
	Name string
	// Config is as for StartScheduler.
	Config []byte
	// Path is the binary. Default: the kube-scheduler of the control plane.
	Path string
	// Probe is the path of its answer that tells that it runs. Default: /readyz, which kube-schedulers of old lack.
	Probe string
	// Kubeconfig says who the scheduler is. Default: kube-scheduler's own user.
	Kubeconfig string
	// LeaderElection leaves leader election as the configuration has it. Default: it is off.
	LeaderElection bool
}

// RunScheduler starts a scheduler; see StartScheduler.
func (c *ControlPlane) RunScheduler(ctx context.Context, o SchedulerOptions) error {
	name := o.Name
	if err := c.usable(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	completed, err := c.schedulerConfig(&o)
	if err != nil {
		return fmt.Errorf("configuration of scheduler %q: %w", name, err)
	}
	path := c.path("config", name+".yaml")
	if err := writePrivate(path, completed); err != nil {
		return err
	}
	args, url, err := c.secureArgs(schedulerUser)
	if err != nil {
		return err
	}
	args = append(append(args, "--config="+path), c.commonArgs()...)
	_, err = c.StartProcess(ctx, ProcessOptions{
		Name: name, Path: cmp.Or(o.Path, filepath.Join(c.bin, "kube-scheduler")), Args: args,
		Ready: c.secureReady(url + cmp.Or(o.Probe, "/readyz")),
	})
	return err
}

func (c *ControlPlane) schedulerConfig(o *SchedulerOptions) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(o.Config, &config); err != nil {
		return nil, err
	}
	if len(config) == 0 {
		config["apiVersion"] = "kubescheduler.config.k8s.io/v1"
		config["kind"] = "KubeSchedulerConfiguration"
		config["profiles"] = []any{map[string]any{"schedulerName": o.Name}}
	}
	kubeconfig := o.Kubeconfig
	if kubeconfig == "" {
		var err error
		if kubeconfig, err = c.Kubeconfig(schedulerUser); err != nil {
			return nil, err
		}
	}
	connection, err := section(config, "clientConnection")
	if err != nil {
		return nil, err
	}
	defaults := map[string]any{"kubeconfig": kubeconfig, "qps": schedulerQPS, "burst": schedulerBurst}
	for key, value := range defaults {
		if _, given := connection[key]; !given {
			connection[key] = value
		}
	}
	election, err := section(config, "leaderElection")
	if err != nil {
		return nil, err
	}
	if !o.LeaderElection {
		election["leaderElect"] = false
	}
	return yaml.Marshal(config)
}

// section returns a map inside a configuration, which it adds when there is none.
func section(config map[string]any, key string) (map[string]any, error) {
	if config[key] == nil {
		config[key] = map[string]any{}
	}
	inner, ok := config[key].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s must be a map, it is %T", key, config[key])
	}
	return inner, nil
}
