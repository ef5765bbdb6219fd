package resources

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// asStored returns a pod as the API server stores it, as far as that counts for capacity: the pod itself where nothing
// is to be filled in, as in all that the API server answers with, else a copy. Other objects come from earlier: a pod
// that was written by hand lacks all of this, and what a mutating webhook sees still lacks what is asked for the pod as
// a whole.
//   - Quantities are rounded up to thousandths.
//   - A request that is missing defaults to the limit of the same container.
//   - Pod-level requests that are missing, where any pod-level resource is
//     given, default to what the containers request together, else to the
//     pod-level limit; for hugepages the containers' limits stand in for a
//     missing pod-level limit.
//
// Host ports are hostPorts' matter. What admission adds (LimitRanges, the overhead of a RuntimeClass, the value of a
// priority class) is not known here: a mutating webhook sees it.
//
// Sources: kubernetes pkg/apis/core/v1 SetDefaults_ResourceList and SetDefaults_Pod, and
// pkg/api/pod.DefaultPodLevelResources, which pkg/registry/core/pod calls for pods that are created or resized.
func asStored(pod *v1.Pod) *v1.Pod {
	if !lacksDefaults(&pod.Spec) {
		return pod
	}
	stored := *pod
	stored.Spec = *pod.Spec.DeepCopy()
	setDefaults(&stored)
	return &stored
}

// ExceedsWhole reports whether the containers of a pod request more than the pod does as a whole. No API server stores
// that: it refuses the pod, or drops what is requested as a whole, which it shows to webhooks before. Those before
// Kubernetes 1.34 drop it of all pods by default, and those before 1.36 of resizes.
func ExceedsWhole(pod *v1.Pod) bool {
	if pod.Spec.Resources == nil {
		return false
	}
	pod = asStored(pod)
	for name, q := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if whole, ok := pod.Spec.Resources.Requests[name]; ok && q.Cmp(whole) > 0 {
			return true
		}
	}
	return false
}

// lacksDefaults reports whether setDefaults changes what counts. Nearly no pod lacks any, so it takes no memory.
func lacksDefaults(spec *v1.PodSpec) bool {
	return containersLackDefaults(spec.Containers) || containersLackDefaults(spec.InitContainers) ||
		isFractional(spec.Overhead) || (spec.Resources != nil && lacksPodLevelDefaults(spec, spec.Resources))
}

func containersLackDefaults(containers []v1.Container) bool {
	for i := range containers {
		if r := &containers[i].Resources; isFractional(r.Requests) || lacks(r.Requests, r.Limits, isAny) {
			return true
		}
	}
	return false
}

func lacksPodLevelDefaults(spec *v1.PodSpec, own *v1.ResourceRequirements) bool {
	if len(own.Requests) == 0 && len(own.Limits) == 0 {
		return false
	}
	if isFractional(own.Requests) || lacks(own.Requests, own.Limits, resourcehelper.IsSupportedPodLevelResource) {
		return true
	}
	for _, containers := range [...][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			if lacks(own.Requests, r.Requests, isOvercommitted) || lacks(own.Requests, r.Limits, isHugePages) {
				return true
			}
		}
	}
	return false
}

// lacks reports whether withDefaults would add to list.
func lacks(list, defaults v1.ResourceList, wanted func(v1.ResourceName) bool) bool {
	for name := range defaults {
		if _, given := list[name]; !given && wanted(name) {
			return true
		}
	}
	return false
}

// isFractional reports whether roundUp would change list.
func isFractional(list v1.ResourceList) bool {
	for _, q := range list {
		if !q.RoundUp(resource.Milli) {
			return true
		}
	}
	return false
}

// setDefaults changes the lists of a pod in place: no cache may share them.
func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	roundUp(spec.Overhead)
	setContainerDefaults(spec.Containers)
	setContainerDefaults(spec.InitContainers)
	if spec.Resources != nil {
		roundUp(spec.Resources.Requests)
		roundUp(spec.Resources.Limits)
		setPodLevelDefaults(pod, spec.Resources)
	}
}

func setContainerDefaults(containers []v1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		roundUp(r.Requests)
		roundUp(r.Limits)
		r.Requests = withDefaults(r.Requests, r.Limits, isAny)
	}
}

func setPodLevelDefaults(pod *v1.Pod, own *v1.ResourceRequirements) {
	if len(own.Requests) == 0 && len(own.Limits) == 0 {
		return
	}
	none := resourcehelper.PodResourcesOptions{}
	own.Limits = withDefaults(own.Limits, resourcehelper.AggregateContainerLimits(pod, none),
		func(name v1.ResourceName) bool {
			_, requested := own.Requests[name]
			return isHugePages(name) && !requested
		})
	// Hugepages are not overcommitted: their requests follow the limits alone.
	own.Requests = withDefaults(own.Requests, resourcehelper.AggregateContainerRequests(pod, none), isOvercommitted)
	own.Requests = withDefaults(own.Requests, own.Limits, resourcehelper.IsSupportedPodLevelResource)
}

func isAny(v1.ResourceName) bool { return true }

// isOvercommitted reports whether a pod may be given more of a resource than it requests as a whole.
func isOvercommitted(name v1.ResourceName) bool {
	return resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name)
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// withDefaults adds to list what it lacks of the defaults that are wanted.
func withDefaults(list, defaults v1.ResourceList, wanted func(v1.ResourceName) bool) v1.ResourceList {
	for name, q := range defaults {
		if _, given := list[name]; given || !wanted(name) {
			continue
		}
		if list == nil {
			list = v1.ResourceList{}
		}
		list[name] = q.DeepCopy()
	}
	return list
}

func roundUp(list v1.ResourceList) {
	for name, q := range list {
		if q.RoundUp(resource.Milli) {
			continue // it needed no rounding
		}
		list[name] = q
	}
}
