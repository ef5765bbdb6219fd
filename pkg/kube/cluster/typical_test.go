package cluster

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// typicalPod is a pod as an API server has it, some 4 KB long.
func typicalPod(i int) *v1.Pod {
	container := func(name string) v1.Container {
		c := v1.Container{
			Name: name, Image: "registry.example/team/" + name + ":v1.2.3", ImagePullPolicy: v1.PullIfNotPresent,
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			VolumeMounts: []v1.VolumeMount{{
				Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
				ReadOnly: true,
			}},
		}
		for e := range 8 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "some value of that setting"})
		}
		return c
	}
	name := fmt.Sprintf("worker-7c9f8d6b5-%06d", i)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%50), Name: name,
			UID: types.UID(fmt.Sprintf("4f1c2d3e-0000-4000-8000-%012d", i)), ResourceVersion: strconv.Itoa(1000 + i),
			Labels:      map[string]string{"app": "worker", "pod-template-hash": "7c9f8d6b5", "tier": "backend"},
			Annotations: map[string]string{"example.com/config-hash": strings.Repeat("0123456789abcdef", 8)},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` +
					strings.Repeat(`"f:labels":{".":{},"f:app":{}},`, 30) + `"f:x":{}}}`),
			}},
		},
		Spec: v1.PodSpec{
			SchedulerName: "default-scheduler", NodeName: fmt.Sprintf("node-%05d", i%5000), ServiceAccountName: "default",
			Containers: []v1.Container{container("main"), container("proxy")},
			Tolerations: []v1.Toleration{
				{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
				{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
			},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.2.3"},
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("0123456789abcdef", 4),
		})
	}
	return pod
}

func typicalNode(i int) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%05d", i), UID: types.UID(fmt.Sprintf("node-uid-%d", i)),
			ResourceVersion: strconv.Itoa(1 + i),
			Labels:          map[string]string{v1.LabelHostname: fmt.Sprintf("node-%05d", i), v1.LabelTopologyZone: "zone-a"},
		},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("128Gi"),
			v1.ResourceEphemeralStorage: resource.MustParse("500Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
	for k := range 50 {
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{
			Names:     []string{fmt.Sprintf("registry.example/image-%d@sha256:%s", k, strings.Repeat("0123456789abcdef", 4))},
			SizeBytes: 1 << 28,
		})
	}
	return node
}
