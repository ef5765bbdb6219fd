package deletedpods

import (
	"fmt"
	"strconv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// newPod asks for CPU, on the nodes of the namespace. It ends as its kubelet says, which is kwok.
func (c *cluster) newPod(name, cpu string, with map[string]string) *corev1.Pod {
	return testbed.NewPod(name, scheduler, cpu, func(pod *corev1.Pod) {
		pod.Annotations, pod.Spec.NodeSelector = with, testbed.Pairs("pool", c.Namespace)
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	})
}

// template is of the pods of a workload.
func (c *cluster) template(app, cpu string, with map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: testbed.Pairs("app", app), Annotations: with},
		Spec:       c.newPod("", cpu, nil).Spec,
	}
}

// fill has pods named prefix-0, prefix-1 ... bound.
func (c *cluster) fill(n int, prefix, cpu string) {
	c.T.Helper()
	for i := range n {
		c.Create(c.newPod(prefix+"-"+strconv.Itoa(i), cpu, nil))
		c.AwaitBound(prefix + "-" + strconv.Itoa(i))
	}
}

// deploy creates a Deployment with annotations of its own and of its pods, and waits until its pods are bound.
func (c *cluster) deploy(name string, replicas int32, cpu string, own, ofPods map[string]string) {
	c.T.Helper()
	_, err := c.Client().AppsV1().Deployments(c.Namespace).Create(c.T.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: own},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: testbed.Pairs("app", name)},
			Template: c.template(name, cpu, ofPods),
			Strategy: appsv1.DeploymentStrategy{
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge:       ptr.To(intstr.Parse("0")),
					MaxUnavailable: ptr.To(intstr.Parse("1")),
				},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	c.awaitPods(name, int(replicas))
}

// podsOf are the pods of a workload made here that are not being deleted.
func (c *cluster) podsOf(app string) []corev1.Pod {
	c.T.Helper()
	list, err := c.Client().CoreV1().Pods(c.Namespace).List(c.T.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(c.T, err)
	pods := list.Items[:0]
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// awaitPods waits until a workload has so many pods, all of them bound.
func (c *cluster) awaitPods(app string, n int) []corev1.Pod {
	c.T.Helper()
	var pods []corev1.Pod
	c.Eventually(func(t *assert.CollectT) {
		pods = c.podsOf(app)
		assert.Len(t, pods, n)
		for i := range pods {
			assert.NotEmpty(t, pods[i].Spec.NodeName, "%s: %+v", pods[i].Name, pods[i].Status.Conditions)
		}
	})
	return pods
}

func (c *cluster) scale(deployment string, replicas int) {
	c.T.Helper()
	c.patchDeployment(deployment, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (c *cluster) patchDeployment(name, patch string) {
	c.T.Helper()
	_, err := c.Client().AppsV1().Deployments(c.Namespace).Patch(c.T.Context(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(c.T, err)
}

func (c *cluster) newStatefulSet(name string, replicas int32, cpu string, with map[string]string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), ServiceName: name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: testbed.Pairs("app", name)}, Template: c.template(name, cpu, with),
		},
	}
}
