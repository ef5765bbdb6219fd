package bench

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	namespace     = "default"
	schedulerName = "default-scheduler"
	// writers is how many requests fill the API server side by side.
	writers = 32
)

// typicalPod is what a Deployment's pod looks like: two containers with probes, variables and mounts.
// A kube-scheduler sends about 4 KB of JSON for it.
func typicalPod(name, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			Labels:      map[string]string{"app": "shop", "component": "checkout", "pod-template-hash": "6b8d7c9f54"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-6b8d7c9f54",
				UID: "0d6c1c62-7d0b-4a55-93a5-7c30a0c2b1f4", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName, ServiceAccountName: "checkout",
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "checkout-config"},
				}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers: []corev1.Container{
				typicalContainer("checkout", 8080, cpu, memory), typicalContainer("sidecar", 9090, "50m", "64Mi"),
			},
			Tolerations: []corev1.Toleration{{
				Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300)),
			}},
		},
	}
}

func typicalContainer(name string, port int32, cpu, memory string) corev1.Container {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(port)}},
		PeriodSeconds: 5, TimeoutSeconds: 2,
	}
	return corev1.Container{
		Name: name, Image: "example.invalid/shop/" + name + ":2026.11.1",
		Args:  []string{"--port=" + strconv.Itoa(int(port)), "--config=/etc/config/app.yaml"},
		Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port}},
		Env: []corev1.EnvVar{
			{
				Name:      "NODE_NAME",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
			},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "DATABASE_URL", Value: "postgres://checkout@database.shop.svc:5432/checkout"},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(cpu),
				corev1.ResourceMemory: resource.MustParse(memory),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/config", ReadOnly: true}, {Name: "scratch", MountPath: "/scratch"},
		},
		LivenessProbe: probe, ReadinessProbe: probe,
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true)},
	}
}

// createPods creates n pods side by side. change may adapt each, by its number.
func createPods(ctx context.Context, client kubernetes.Interface, n int,
	change func(int, *corev1.Pod),
) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() (err error) {
			pod := typicalPod("checkout-6b8d7c9f54-"+strconv.Itoa(i), "100m", "128Mi")
			if change != nil {
				change(i, pod)
			}
			if pods[i], err = client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod %s: %w", pod.Name, err)
			}
			return nil
		})
	}
	return pods, group.Wait()
}
