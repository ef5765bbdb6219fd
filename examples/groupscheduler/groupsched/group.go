package groupsched

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	// GroupLabel on a pod names its group within the namespace.
	GroupLabel = "globalreserve.io/group"
	// GroupSizeAnnotation on a pod says of how many pods its group is made.
	GroupSizeAnnotation = "globalreserve.io/group-size"
)

// GroupOf returns the group a pod belongs to and the group's size, or an empty name for a pod
// without a group.
func GroupOf(pod *corev1.Pod) (name string, size int, err error) {
	name = pod.Labels[GroupLabel]
	if name == "" {
		return "", 0, nil
	}
	text := pod.Annotations[GroupSizeAnnotation]
	size, err = strconv.Atoi(text)
	if err != nil || size < 1 {
		return name, 0, fmt.Errorf("pod %s/%s is in group %q, but its annotation %s is %q; set it to the number of pods in the group",
			pod.Namespace, pod.Name, name, GroupSizeAnnotation, text)
	}
	return name, size, nil
}

// Mark makes a pod a member of a group.
func Mark(pod *corev1.Pod, name string, size int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Labels[GroupLabel] = name
	pod.Annotations[GroupSizeAnnotation] = strconv.Itoa(size)
}

// group is what there is of a group at one moment.
type group struct {
	size    int
	members int           // pods that exist and are not going away
	waiting []*corev1.Pod // those of them that have no node yet, by name
}

// complete tells whether all pods of the group are there.
func (g *group) complete() bool { return g.members >= g.size }

// collect puts together a group from its pods. bound tells of a pod that it has a node although the
// pod given does not show it yet.
func collect(pods []*corev1.Pod, bound func(*corev1.Pod) bool) (group, error) {
	var g group
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || isFinished(pod) {
			continue
		}
		_, size, err := GroupOf(pod)
		if err != nil {
			return group{}, err
		}
		if g.members > 0 && size != g.size {
			return group{}, fmt.Errorf("pod %s/%s says that its group has %d pods, another says %d; make the annotation %s the same on all",
				pod.Namespace, pod.Name, size, g.size, GroupSizeAnnotation)
		}
		g.size = size
		g.members++
		if !bound(pod) && len(pod.Spec.SchedulingGates) == 0 {
			g.waiting = append(g.waiting, pod)
		} else if !bound(pod) {
			// A gated pod exists, but may not be scheduled yet: the group has to wait for it.
			g.members--
		}
	}
	slices.SortFunc(g.waiting, func(x, y *corev1.Pod) int { return cmp.Compare(x.Name, y.Name) })
	return g, nil
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
