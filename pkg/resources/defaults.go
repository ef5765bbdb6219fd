package resources

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// SetDefaults fills in what the API server would default of the fields that
// count for capacity, for a pod that was written by hand and not created yet:
//   - quantities are rounded up to thousandths;
//   - a request that is missing defaults to the limit of the same container;
//   - pod-level requests that are missing, where any pod-level resource is
//     given, default to what the containers request together, else to the
//     pod-level limit; for hugepages the containers' limits stand in for a
//     missing pod-level limit;
//   - a container port is TCP, and in a pod on the host's network the port is
//     the host port too.
//
// A pod that has these defaults already is not changed. The pod's lists are
// changed in place: it must not be one that a cache shares. What admission adds
// (LimitRanges, the overhead of a RuntimeClass, the value of a priority class)
// is not known here.
//
// Sources: kubernetes pkg/apis/core/v1 SetDefaults_ResourceList and
// SetDefaults_Pod, pkg/api/pod.DefaultPodLevelResources.
func SetDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	roundUp(spec.Overhead)
	for i := range spec.Containers {
		setContainerDefaults(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.InitContainers {
		setContainerDefaults(&spec.InitContainers[i], spec.HostNetwork)
	}
	if spec.Resources != nil {
		roundUp(spec.Resources.Requests)
		roundUp(spec.Resources.Limits)
		setPodLevelDefaults(pod, spec.Resources)
	}
}

func setContainerDefaults(c *v1.Container, hostNetwork bool) {
	roundUp(c.Resources.Requests)
	roundUp(c.Resources.Limits)
	c.Resources.Requests = withDefaults(c.Resources.Requests, c.Resources.Limits, func(v1.ResourceName) bool { return true })
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Protocol == "" {
			p.Protocol = v1.ProtocolTCP
		}
		if hostNetwork && p.HostPort == 0 {
			p.HostPort = p.ContainerPort
		}
	}
}

func setPodLevelDefaults(pod *v1.Pod, own *v1.ResourceRequirements) {
	if len(own.Requests) == 0 && len(own.Limits) == 0 {
		return
	}
	none := resourcehelper.PodResourcesOptions{}
	own.Limits = withDefaults(own.Limits, resourcehelper.AggregateContainerLimits(pod, none), func(name v1.ResourceName) bool {
		_, requested := own.Requests[name]
		return isHugePages(name) && !requested
	})
	// Hugepages are not overcommitted: their requests follow the limits alone.
	own.Requests = withDefaults(own.Requests, resourcehelper.AggregateContainerRequests(pod, none), func(name v1.ResourceName) bool {
		return resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name)
	})
	own.Requests = withDefaults(own.Requests, own.Limits, resourcehelper.IsSupportedPodLevelResource)
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
