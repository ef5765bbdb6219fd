package clusterload

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// SchedulerConfig returns a file of scheduler-config/, such as "default-scheduler.yaml", for a
// scheduler of the harness: with the server's URL in its extender, and with the kubeconfig left to
// the harness. An empty URL takes the extender out: the same scheduler without GlobalReserve.
func SchedulerConfig(file, serverURL string) ([]byte, error) {
	config, err := schedulerConfig(file)
	if err != nil {
		return nil, err
	}
	if serverURL == "" {
		delete(config, "extenders")
		return yaml.Marshal(config)
	}
	for _, e := range config["extenders"].([]any) {
		e.(map[string]any)["urlPrefix"] = serverURL
	}
	return yaml.Marshal(config)
}

// schedulerConfig reads a file of scheduler-config/, and leaves the kubeconfig to the harness.
func schedulerConfig(file ...string) (map[string]any, error) {
	content, err := controlplane.ReadFile(append([]string{"scheduler-config"}, file...)...)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration %v: %w", file, err)
	}
	delete(config["clientConnection"].(map[string]any), "kubeconfig")
	return config, nil
}
