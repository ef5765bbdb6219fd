package clusterload

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// VolcanoGroupAnnotation on a pod names its PodGroup, as Volcano reads it.
const VolcanoGroupAnnotation = "scheduling.k8s.io/group-name"

// MarkVolcanoPodGroup makes a pod a member of a PodGroup for Volcano, and for the verdict.
func MarkVolcanoPodGroup(pod *corev1.Pod, name string, size int) {
	pod.Annotations = map[string]string{VolcanoGroupAnnotation: name, podGroupSize: strconv.Itoa(size)}
}

var volcano = other{name: "volcano", module: "volcano.sh/volcano"}

var (
	volcanoPodGroupKind = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}
	volcanoQueueKind    = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "Queue"}
)

// volcanoKinds are those that Volcano's scheduler follows. It places nothing before it has a list of each.
var volcanoKinds = []schema.GroupVersionKind{
	volcanoPodGroupKind, volcanoQueueKind,
	{Group: "nodeinfo.volcano.sh", Version: "v1alpha1", Kind: "Numatopology"},
	{Group: "topology.volcano.sh", Version: "v1alpha1", Kind: "HyperNode"},
}

// volcanoReady is what Volcano's scheduler logs, with --v=2, when it begins to place pods.
const volcanoReady = "Scheduler completes Initialization"

// DefineVolcano creates the definitions that Volcano's scheduler needs, and waits until the API server serves them.
func DefineVolcano(ctx context.Context, cp *controlplane.ControlPlane) error {
	for _, kind := range volcanoKinds {
		if err := volcano.define(ctx, cp, kind, "config", "crd", "volcano", "bases"); err != nil {
			return err
		}
	}
	return nil
}

// VolcanoPodGroup is a gang of at least so many pods, for Volcano.
func VolcanoPodGroup(namespace, name string, minMember int) *unstructured.Unstructured {
	return newPodGroup(volcanoPodGroupKind, namespace, name, minMember)
}

// StartVolcano starts the scheduler of Volcano, which knows nothing of GlobalReserve, with the configuration that it
// has where nobody gives it one. It ends with its control plane.
func StartVolcano(ctx context.Context, cp *controlplane.ControlPlane, name string) (*controlplane.Process, error) {
	kubeconfig, err := cp.Kubeconfig("volcano", controlplane.AdminGroup)
	if err != nil {
		return nil, err
	}
	scheduler, err := volcano.start(ctx, cp, volcanoReady, controlplane.ProcessOptions{
		Name: name,
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--scheduler-name=" + name, "--leader-elect=false",
			"--listen-address=127.0.0.1:0", "--enable-healthz=false", "--cache-dumper=false",
			"--kube-api-qps=2000", "--kube-api-burst=2000", "--v=2",
		},
		// It makes a socket, by which its log level is set, in a folder that all schedulers of a machine would share.
		Env: []string{"DEBUG_SOCKET_DIR=" + cp.LogDir()},
	})
	if err != nil {
		return nil, err
	}
	return scheduler, openQueues(ctx, cp)
}

// openQueues opens the queues that Volcano's scheduler has made. Volcano's controllers do that, which nobody runs here,
// and nothing is placed from a queue that is not open.
func openQueues(ctx context.Context, cp *controlplane.ControlPlane) error {
	queue := &unstructured.Unstructured{}
	queue.SetGroupVersionKind(volcanoQueueKind)
	queues, err := cp.Resource(queue, "")
	if err != nil {
		return err
	}
	for _, name := range []string{"root", "default"} {
		_, err := queues.Patch(ctx, name, types.MergePatchType, []byte(`{"status": {"state": "Open"}}`),
			metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("open Volcano's queue %s: %w", name, err)
		}
	}
	return nil
}
