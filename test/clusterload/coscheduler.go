package clusterload

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// PodGroupLabel on a pod names its PodGroup, as Coscheduling reads it.
const PodGroupLabel = "scheduling.x-k8s.io/pod-group"

// MarkPodGroup makes a pod a member of a PodGroup for Coscheduling, and for the verdict.
func MarkPodGroup(pod *corev1.Pod, name string, size int) {
	pod.Labels = map[string]string{PodGroupLabel: name}
	pod.Annotations = map[string]string{podGroupSize: strconv.Itoa(size)}
}

var podGroupKind = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}

var coscheduler = other{name: "coscheduler", module: "sigs.k8s.io/scheduler-plugins"}

// DefinePodGroups creates the definition of PodGroups that Coscheduling brings, and waits until the API server serves
// them.
func DefinePodGroups(ctx context.Context, cp *controlplane.ControlPlane) error {
	return coscheduler.define(ctx, cp, podGroupKind, "config", "crd", "bases")
}

// PodGroup is a gang of at least so many pods, for Coscheduling.
func PodGroup(namespace, name string, minMember int) *unstructured.Unstructured {
	return newPodGroup(podGroupKind, namespace, name, minMember)
}

// StartCoscheduler starts a gang scheduler that is not ours and knows nothing of GlobalReserve: kube-scheduler with
// Coscheduling, which has its own configuration but for its name. It ends with its control plane.
func StartCoscheduler(ctx context.Context, cp *controlplane.ControlPlane, name string) (*controlplane.Process, error) {
	path, err := program(coscheduler.name, coscheduler.name)
	if err != nil {
		return nil, err
	}
	config, err := coschedulerConfig(ctx, name)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cp.Kubeconfig("coscheduler", controlplane.AdminGroup)
	if err != nil {
		return nil, err
	}
	options := controlplane.SchedulerOptions{Name: name, Config: config, Path: path, Kubeconfig: kubeconfig}
	if err := cp.RunScheduler(ctx, options); err != nil {
		return nil, err
	}
	return cp.Process(name)
}

// coschedulerConfig is the configuration that Coscheduling's manifests have, for a scheduler of another name.
func coschedulerConfig(ctx context.Context, name string) ([]byte, error) {
	content, err := coscheduler.file(ctx, "manifests", "coscheduling", "scheduler-config.yaml")
	if err != nil {
		return nil, err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("read the configuration of Coscheduling: %w", err)
	}
	delete(config["clientConnection"].(map[string]any), "kubeconfig")
	for _, profile := range config["profiles"].([]any) {
		profile.(map[string]any)["schedulerName"] = name
	}
	return yaml.Marshal(config)
}
