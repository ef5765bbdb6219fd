package keeproom

import (
	"fmt"
	"strconv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// annotations of a pod or a Deployment, as pairs.
func annotations(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// podSpec is a container that asks for CPU, on the nodes of the namespace.
func (c *cluster) podSpec(cpu string) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: scheduler, TerminationGracePeriodSeconds: ptr.To[int64](1),
		NodeSelector: map[string]string{"pool": c.namespace},
		Containers: []corev1.Container{{
			Name: "main", Image: "example.invalid/not-pulled",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		}},
	}
}

func (c *cluster) newPod(name, cpu string, with map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Annotations: with},
		Spec:       c.podSpec(cpu),
	}
}

func (c *cluster) create(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		_, err := c.Client().CoreV1().Pods(c.namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

// fill has pods named prefix-0, prefix-1 ... bound.
func (c *cluster) fill(n int, prefix, cpu string) {
	c.t.Helper()
	for i := range n {
		c.create(c.newPod(prefix+"-"+strconv.Itoa(i), cpu, nil))
	}
	for i := range n {
		c.awaitBound(prefix + "-" + strconv.Itoa(i))
	}
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Pods(c.namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	c.eventually(soon, func(t *assert.CollectT) { assert.Nil(t, c.get(name)) })
}

// deploy creates a Deployment with annotations of its own and of its pods, and waits until its pods
// are bound.
func (c *cluster) deploy(name string, replicas int32, cpu string, own, ofPods map[string]string) {
	c.t.Helper()
	selector := map[string]string{"app": name}
	spec := c.podSpec(cpu)
	_, err := c.Client().AppsV1().Deployments(c.namespace).Create(c.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: own},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector, Annotations: ofPods}, Spec: spec},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.Parse("0")), MaxUnavailable: ptr.To(intstr.Parse("1"))}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.awaitPods(name, int(replicas))
}

// podsOf are the pods of a workload made here that are not being deleted.
func (c *cluster) podsOf(app string) []corev1.Pod {
	c.t.Helper()
	list, err := c.Client().CoreV1().Pods(c.namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(c.t, err)
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
	c.t.Helper()
	var pods []corev1.Pod
	c.eventually(late, func(t *assert.CollectT) {
		pods = c.podsOf(app)
		assert.Len(t, pods, n)
		for i := range pods {
			assert.NotEmpty(t, pods[i].Spec.NodeName, "%s: %+v", pods[i].Name, pods[i].Status.Conditions)
		}
	})
	return pods
}

func (c *cluster) scale(deployment string, replicas int) {
	c.t.Helper()
	c.patchDeployment(deployment, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (c *cluster) patchDeployment(name, patch string) {
	c.t.Helper()
	_, err := c.Client().AppsV1().Deployments(c.namespace).Patch(c.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) newStatefulSet(name string, replicas int32, cpu string, with map[string]string) *appsv1.StatefulSet {
	selector := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), ServiceName: name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector, Annotations: with}, Spec: c.podSpec(cpu)},
		},
	}
}

func (c *cluster) newJob(name, cpu string, with map[string]string) *batchv1.Job {
	spec := c.podSpec(cpu)
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: with}, Spec: spec},
		},
	}
}

// reserve creates a Reservation by hand.
func (c *cluster) reserve(name string, change func(spec *v1alpha1.ReservationSpec), slots ...v1alpha1.Slot) {
	c.t.Helper()
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       v1alpha1.ReservationSpec{Slots: slots},
	}
	change(&rsv.Spec)
	_, err := c.reservations.GlobalreserveV1alpha1().Reservations(c.namespace).Create(c.t.Context(), rsv, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// slot is room on a node, which the server chooses among those of the namespace where none is named.
func (c *cluster) slot(name, node, cpu string) v1alpha1.Slot {
	s := v1alpha1.Slot{
		Name: name, NodeName: node,
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
	if node == "" {
		s.NodeSelector = map[string]string{"pool": c.namespace}
	}
	return s
}
