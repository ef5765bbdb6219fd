package agreement

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/test/ledgertest"
)

// chance is true once in n times.
func chance(t *rapid.T, label string, n int) bool { return ledgertest.Pick(t, label, n) == n-1 }

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return values[ledgertest.Pick(t, label, len(values))]
}

// coreNames are asked for often; otherNames are counted, or not, by their form.
var (
	coreNames  = []v1.ResourceName{"cpu", "memory", "ephemeral-storage"}
	otherNames = []v1.ResourceName{
		"example.com/gpu", "example.com/fpga", "hugepages-2Mi", "hugepages-1Gi", "attachable-volumes-csi-x",
		"kubernetes.io/odd", "x.kubernetes.io/native", "requests.example.com/quota", "plain", "storage", "pods",
		"example.com/not_(valid)", "a/b/c", "limits.cpu",
	}
	fractions = []string{"0", "1", "2", "3", "500m", "100m", "1m", "1500u", "999999n", "1n", "0.3", "1k", "1Ki", "100u"}
	wholes    = []string{"0", "1", "2", "3", "4Mi", "1Gi"}
)

// quantity draws an amount. Extended resources are whole numbers in pods that
// the API server accepted; the others may be any fraction.
func quantity(t *rapid.T, name v1.ResourceName) resource.Quantity {
	if slices.Contains(coreNames, name) {
		return resource.MustParse(oneOf(t, "fraction", fractions...))
	}
	return resource.MustParse(oneOf(t, "whole", wholes...))
}

// resourceList draws some amounts; nil now and then.
func resourceList(t *rapid.T) v1.ResourceList {
	if chance(t, "no list", 6) {
		return nil
	}
	list := v1.ResourceList{}
	for _, name := range coreNames {
		if ledgertest.Pick(t, "named", 3) > 0 {
			list[name] = quantity(t, name)
		}
	}
	for range ledgertest.Pick(t, "others", 3) {
		name := oneOf(t, "other", otherNames...)
		list[name] = quantity(t, name)
	}
	return list
}

// podLevelList draws amounts of what may be given for a pod as a whole, and of what may not.
func podLevelList(t *rapid.T) v1.ResourceList {
	list := v1.ResourceList{}
	for _, name := range []v1.ResourceName{"cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu"} {
		if chance(t, "pod level", 3) {
			list[name] = quantity(t, name)
		}
	}
	return list
}

func ports(t *rapid.T) []v1.ContainerPort {
	var list []v1.ContainerPort
	for range max(0, ledgertest.Pick(t, "ports", 6)-3) {
		p := v1.ContainerPort{
			ContainerPort: int32(80 + ledgertest.Pick(t, "container port", 2)),
			HostIP:        oneOf(t, "host IP", "", "", "0.0.0.0", "10.0.0.1", "127.0.0.1", "::", "fd00::1", "fd00:0::1"),
			Protocol:      oneOf(t, "protocol", v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP, ""),
		}
		if !chance(t, "no host port", 4) {
			p.HostPort = int32(8080 + ledgertest.Pick(t, "host port", 3))
		}
		list = append(list, p)
	}
	return list
}

func container(t *rapid.T, name string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: resourceList(t)}, Ports: ports(t)}
}

// pod draws a pod of any shape. Its status may be anything, whatever its spec.
func pod(t *rapid.T, name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	for i := range 1 + ledgertest.Pick(t, "containers", 3) {
		p.Spec.Containers = append(p.Spec.Containers, container(t, fmt.Sprintf("c%d", i)))
	}
	for i := range max(0, ledgertest.Pick(t, "init containers", 6)-2) {
		c := container(t, fmt.Sprintf("i%d", i))
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = ptr.To(oneOf(t, "restart policy", v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyAlways,
				v1.ContainerRestartPolicyNever))
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if chance(t, "overhead", 4) {
		p.Spec.Overhead = resourceList(t)
	}
	for range max(0, ledgertest.Pick(t, "claims that take of the node's own", 5)-2) {
		p.Status.NodeAllocatableResourceClaimStatuses = append(p.Status.NodeAllocatableResourceClaimStatuses, claimStatus(t))
	}
	if chance(t, "pod-level resources", 3) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: podLevelList(t), Limits: podLevelList(t)}
	}
	return p
}

// claimStatus draws what the devices of a ResourceClaim take of a node's own resources.
func claimStatus(t *rapid.T) (s v1.NodeAllocatableResourceClaimStatus) {
	amount := func(name v1.ResourceName) *resource.Quantity {
		if chance(t, "no amount", 4) {
			return nil
		}
		return ptr.To(quantity(t, name))
	}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi"} {
		if chance(t, "mapped", 2) {
			s.Mapping = append(s.Mapping, v1.NodeAllocatableMappedResources{Name: name, Quantity: amount(name)})
		}
		if chance(t, "overhead", 3) {
			s.Overhead = append(s.Overhead, v1.NodeAllocatableOverheadResources{
				Name: name, PerPod: amount(name), PerContainer: amount(name),
			})
		}
	}
	for i := range ledgertest.Pick(t, "containers that claim", 3) {
		s.Containers = append(s.Containers, fmt.Sprintf("c%d", i))
	}
	return s
}

// run gives a pod the node and the status of one that was bound: in-place resizes in any stage, phases, deletion.
func run(t *rapid.T, p *v1.Pod, node string) *v1.Pod {
	p.Spec.NodeName = node
	p.Status.Phase = oneOf(t, "phase", v1.PodRunning, v1.PodRunning, v1.PodPending, v1.PodPending, v1.PodSucceeded,
		v1.PodFailed, v1.PodUnknown)
	if chance(t, "terminating", 4) {
		p.DeletionTimestamp = &metav1.Time{}
	}
	for _, c := range p.Spec.Containers {
		if ledgertest.Pick(t, "container status", 3) > 0 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, containerStatus(t, c.Name))
		}
	}
	for _, c := range p.Spec.InitContainers {
		if ledgertest.Pick(t, "init container status", 3) > 0 {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, containerStatus(t, c.Name))
		}
	}
	if chance(t, "pod-level status", 4) {
		p.Status.AllocatedResources = podLevelList(t)
		p.Status.Resources = &v1.ResourceRequirements{Requests: podLevelList(t)}
	}
	if n := ledgertest.Pick(t, "resize", 5); n >= 3 {
		reason := []string{v1.PodReasonInfeasible, v1.PodReasonDeferred}[n-3]
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason}}
	}
	return p
}

func containerStatus(t *rapid.T, name string) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: name, AllocatedResources: resourceList(t)}
	if ledgertest.Pick(t, "actuated", 3) > 0 {
		s.Resources = &v1.ResourceRequirements{Requests: resourceList(t)}
	}
	return s
}
