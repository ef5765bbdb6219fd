package clusterload

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// YuniKorn is the schedulerName of YuniKorn's pods, which nothing changes.
const YuniKorn = "yunikorn"

// yuniKornApplication is the label on a pod that names its application, as YuniKorn reads it.
const yuniKornApplication = "applicationId"

// yuniKornPlaceholder is the annotation by which YuniKorn marks the pods that it makes to keep capacity.
const yuniKornPlaceholder = "internal.yunikorn.apache.org/placeholder"

// yuniKornReady is what YuniKorn logs when it begins to place pods.
const yuniKornReady = "scheduler state initialized"

var yuniKorn = other{name: YuniKorn, module: "github.com/apache/yunikorn-k8shim"}

// MarkYuniKornGang makes a pod a member of an application of one task group for YuniKorn, and of a gang for the
// verdict. To GlobalReserve it is no gang: YuniKorn does not follow a placeholder that is redirected.
func MarkYuniKornGang(pod *corev1.Pod, name string, size int) {
	const group = "members"
	groups, err := json.Marshal([]map[string]any{{ // what YuniKorn makes placeholders of
		// Of more or less than a pod requests YuniKorn makes no room for it.
		"name": group, "minMember": size, "minResource": pod.Spec.Containers[0].Resources.Requests,
	}})
	if err != nil {
		panic(err) // quantities and names can always be written
	}
	pod.Labels = map[string]string{yuniKornApplication: name, "queue": "root.default"}
	pod.Annotations = map[string]string{
		"yunikorn.apache.org/task-group-name": group, "yunikorn.apache.org/task-groups": string(groups),
		podGroupSize: strconv.Itoa(size),
	}
}

// IsYuniKornPlaceholder tells whether YuniKorn made a pod to keep capacity for another one.
func IsYuniKornPlaceholder(pod *corev1.Pod) bool {
	return pod.Annotations[yuniKornPlaceholder] == "true"
}

// takeYuniKornPort keeps YuniKorn from listening on all addresses of the machine, which no setting does: it goes on
// without its port where that is taken.
var takeYuniKornPort = sync.OnceFunc(func() {
	_, _ = net.Listen("tcp", "127.0.0.1:9080") // which lasts as long as this process; another one may have it
})

// StartYuniKorn starts the scheduler of YuniKorn, which knows nothing of GlobalReserve, with the configuration that it
// has where there is none. It ends with its control plane.
func StartYuniKorn(ctx context.Context, cp *controlplane.ControlPlane) (*controlplane.Process, error) {
	kubeconfig, err := cp.Kubeconfig(YuniKorn, controlplane.AdminGroup)
	if err != nil {
		return nil, err
	}
	takeYuniKornPort()
	return yuniKorn.start(ctx, cp, yuniKornReady, controlplane.ProcessOptions{
		Name: YuniKorn,
		// In a pod it would take that pod's cluster for its own.
		Env: []string{"KUBECONFIG=" + kubeconfig, "NAMESPACE=default", "KUBERNETES_SERVICE_HOST="},
	})
}
