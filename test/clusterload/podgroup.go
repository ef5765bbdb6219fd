package clusterload

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

// podGroupSize is the annotation by which a verdict knows the size of a PodGroup. Nobody else reads it.
const podGroupSize = "clusterload/pod-group-size"

// gangOf returns the gang of a pod and its size, or an empty name.
func gangOf(pod *corev1.Pod) (name string, size int, err error) {
	if text, ok := pod.Annotations[podGroupSize]; ok {
		size, err = strconv.Atoi(text)
		name = cmp.Or(pod.Labels[PodGroupLabel], pod.Annotations[VolcanoGroupAnnotation], pod.Labels[yuniKornApplication])
		return name, size, err
	}
	return gangsched.GangOf(pod)
}

// newPodGroup is a PodGroup of one of the kinds that say so in the field minMember.
func newPodGroup(kind schema.GroupVersionKind, namespace, name string, minMember int) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(minMember)}}}
	group.SetGroupVersionKind(kind)
	group.SetNamespace(namespace)
	group.SetName(name)
	return group
}
