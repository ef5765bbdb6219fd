package gangsched

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// GangOf returns the gang a pod belongs to and the gang's size, or an empty name for a pod without a gang.
func GangOf(pod *corev1.Pod) (name string, size int, err error) {
	name = pod.Annotations[v1alpha1.GangAnnotation]
	if name == "" {
		return "", 0, nil
	}
	text := pod.Annotations[v1alpha1.GangMinAnnotation]
	size, err = strconv.Atoi(text)
	if err != nil || size < 1 {
		return name, 0,
			fmt.Errorf("pod %s/%s is in gang %q, but its annotation %s is %q; set it to the number of pods in the gang",
				pod.Namespace, pod.Name, name, v1alpha1.GangMinAnnotation, text)
	}
	return name, size, nil
}

// Mark makes a pod a member of a gang, by the annotations that the server knows it by, too.
func Mark(pod *corev1.Pod, name string, size int) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.GangAnnotation] = name
	pod.Annotations[v1alpha1.GangMinAnnotation] = strconv.Itoa(size)
}

// gang is what there is of a gang at one moment.
type gang struct {
	size    int
	members int           // pods that exist and are not going away
	waiting []*corev1.Pod // those of them that have no node yet, by name
}

// complete reports whether all pods of the gang are there.
func (g *gang) complete() bool { return g.members >= g.size }

// collect puts together a gang from its pods. bound reports whether a pod has a node, also where the
// pod given does not show it yet.
func collect(pods []*corev1.Pod, bound func(*corev1.Pod) bool) (gang, error) {
	var g gang
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || isFinished(pod) {
			continue
		}
		_, size, err := GangOf(pod)
		if err != nil {
			return gang{}, err
		}
		if g.members > 0 && size != g.size {
			return gang{},
				fmt.Errorf("pod %s/%s says that its gang has %d pods, another says %d; make the annotation %s the same on all",
					pod.Namespace, pod.Name, size, g.size, v1alpha1.GangMinAnnotation)
		}
		g.size = size
		g.members++
		if !bound(pod) && len(pod.Spec.SchedulingGates) == 0 {
			g.waiting = append(g.waiting, pod)
		} else if !bound(pod) {
			// A gated pod exists, but may not be scheduled yet: the gang has to wait for it.
			g.members--
		}
	}
	slices.SortFunc(g.waiting, func(x, y *corev1.Pod) int { return cmp.Compare(x.Name, y.Name) })
	return g, nil
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
