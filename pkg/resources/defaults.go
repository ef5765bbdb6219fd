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
	lacks := filler{}
	if lacks.fill(pod); !lacks.found { // nearly no pod lacks any, so this look takes no memory
		return pod
	}
	stored := *pod
	stored.Spec = *pod.Spec.DeepCopy() // no cache may share the lists
	(&filler{write: true}).fill(&stored)
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

// filler fills in what a pod lacks, in place, or, unless it is to write, only finds that there is something.
type filler struct{ write, found bool }

func (f *filler) fill(pod *v1.Pod) {
	spec := &pod.Spec
	f.roundUp(spec.Overhead)
	own := spec.Resources
	if own != nil && len(own.Requests)+len(own.Limits) == 0 {
		own = nil
	}
	for _, containers := range [...][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			f.roundUp(r.Requests)
			f.roundUp(r.Limits)
			f.add(&r.Requests, r.Limits, isAny)
			if own != nil && !f.write { // what they sum up to has the same names
				f.add(&own.Requests, r.Requests, isOvercommitted)
				f.add(&own.Requests, r.Limits, isHugePages)
			}
		}
	}
	if own != nil {
		f.podLevel(pod, own)
	}
}

func (f *filler) podLevel(pod *v1.Pod, own *v1.ResourceRequirements) {
	f.roundUp(own.Requests)
	f.roundUp(own.Limits)
	if f.write {
		none := resourcehelper.PodResourcesOptions{}
		f.add(&own.Limits, resourcehelper.AggregateContainerLimits(pod, none), func(name v1.ResourceName) bool {
			_, requested := own.Requests[name]
			return isHugePages(name) && !requested
		})
		// Hugepages are not overcommitted: their requests follow the limits alone.
		f.add(&own.Requests, resourcehelper.AggregateContainerRequests(pod, none), isOvercommitted)
	}
	f.add(&own.Requests, own.Limits, resourcehelper.IsSupportedPodLevelResource)
}

func isAny(v1.ResourceName) bool { return true }

// isOvercommitted reports whether a pod may be given more of a resource than it requests as a whole.
func isOvercommitted(name v1.ResourceName) bool {
	return resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name)
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// add adds to a list what it lacks of the defaults that are wanted.
func (f *filler) add(list *v1.ResourceList, defaults v1.ResourceList, wanted func(v1.ResourceName) bool) {
	for name, q := range defaults {
		if _, given := (*list)[name]; given || !wanted(name) {
			continue
		}
		f.found = true
		if !f.write {
			return
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
	}
}

func (f *filler) roundUp(list v1.ResourceList) {
	for name, q := range list {
		if q.RoundUp(resource.Milli) {
			continue // it needed no rounding
		}
		f.found = true
		if f.write {
			list[name] = q
		}
	}
}
