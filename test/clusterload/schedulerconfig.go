package clusterload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// SchedulerConfig returns a file of scheduler-config/, such as "default-scheduler.yaml", for a
// scheduler of the harness: with the server's URL in its extender, and with the kubeconfig left to
// the harness. An empty URL takes the extender out: the same scheduler without GlobalReserve.
func SchedulerConfig(file, serverURL string) ([]byte, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, "scheduler-config", file))
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration %s: %w", file, err)
	}
	if connection, ok := config["clientConnection"].(map[string]any); ok {
		delete(connection, "kubeconfig")
	}
	if err := setExtenderURL(config, serverURL); err != nil {
		return nil, fmt.Errorf("the scheduler's configuration %s: %w", file, err)
	}
	return yaml.Marshal(config)
}

func setExtenderURL(config map[string]any, url string) error {
	extenders, ok := config["extenders"].([]any)
	if !ok || len(extenders) == 0 {
		return errors.New("it has no extenders")
	}
	if url == "" {
		delete(config, "extenders")
		return nil
	}
	for _, e := range extenders {
		extender, ok := e.(map[string]any)
		if !ok {
			return fmt.Errorf("an extender is %T instead of a map", e)
		}
		extender["urlPrefix"] = url
	}
	return nil
}
