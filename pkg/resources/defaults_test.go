package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func TestSetDefaults(t *testing.T) {
	limited := func(requests, limits v1.ResourceList) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	podLevel := func(requests, limits v1.ResourceList, containers ...v1.Container) *v1.Pod {
		pod := podOf(containers...)
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
		return pod
	}
	tests := map[string]struct {
		pod  *v1.Pod
		want amounts
	}{
		"a missing request is the limit": {
			podOf(limited(nil, list("cpu", "2", "memory", "5"))), amounts{"pods": 1, "cpu": 2000, "memory": 5},
		},
		"a given request stays, zero too": {
			podOf(limited(list("cpu", "1", "memory", "0"), list("cpu", "2", "memory", "5"))), amounts{"pods": 1, "cpu": 1000},
		},
		"init containers too": {
			&v1.Pod{Spec: v1.PodSpec{
				InitContainers: []v1.Container{limited(nil, list("cpu", "3"))}, Containers: []v1.Container{limited(nil, list("cpu", "2"))},
			}},
			amounts{"pods": 1, "cpu": 3000},
		},
		"each container is rounded up to thousandths": {
			podOf(limited(list("cpu", "1u"), nil), limited(list("cpu", "1u"), nil)), amounts{"pods": 1, "cpu": 2},
		},
		"overhead is rounded up too": {
			&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{limited(list("cpu", "1u"), nil)}, Overhead: list("cpu", "1u")}},
			amounts{"pods": 1, "cpu": 2},
		},
		"pod-level limits stand in where no container requests": {
			podLevel(nil, list("cpu", "4", "memory", "9"), limited(list("cpu", "1"), nil)), amounts{"pods": 1, "cpu": 1000, "memory": 9},
		},
		"containers' defaulted requests come before pod-level limits": {
			podLevel(nil, list("cpu", "4"), limited(nil, list("cpu", "1"))), amounts{"pods": 1, "cpu": 1000},
		},
		"hugepages follow the containers' limits": {
			podLevel(list("cpu", "1"), nil, limited(nil, list("hugepages-2Mi", "4Mi"))), amounts{"pods": 1, "cpu": 1000, "hugepages-2Mi": 4 << 20},
		},
		"hugepages follow the pod's limit before the containers' requests": {
			podLevel(nil, list("hugepages-2Mi", "8Mi"), limited(nil, list("hugepages-2Mi", "4Mi"))), amounts{"pods": 1, "hugepages-2Mi": 8 << 20},
		},
		"empty pod-level resources change nothing": {podLevel(nil, nil, limited(nil, list("cpu", "1"))), amounts{"pods": 1, "cpu": 1000}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table := NewTable()
			SetDefaults(tt.pod)
			assert.Equal(t, tt.want, amounts(named(table, ForBoundPod(table, tt.pod).Amounts)))
			once := tt.pod.DeepCopy()
			SetDefaults(tt.pod)
			assert.Equal(t, once, tt.pod, "a second time changes nothing")
		})
	}
}

func TestSetDefaultsOfPorts(t *testing.T) {
	ports := func(hostNetwork bool) *v1.Pod {
		c := v1.Container{Ports: []v1.ContainerPort{
			{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081, Protocol: v1.ProtocolUDP},
		}}
		return &v1.Pod{Spec: v1.PodSpec{HostNetwork: hostNetwork, Containers: []v1.Container{c}, InitContainers: []v1.Container{*c.DeepCopy()}}}
	}
	pod := ports(false)
	SetDefaults(pod)
	want := []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}, {ContainerPort: 81, HostPort: 8081, Protocol: v1.ProtocolUDP}}
	assert.Equal(t, want, pod.Spec.Containers[0].Ports)
	assert.Equal(t, want, pod.Spec.InitContainers[0].Ports)

	pod = ports(true)
	SetDefaults(pod)
	want[0].HostPort = 80
	assert.Equal(t, want, pod.Spec.Containers[0].Ports)
	assert.Equal(t, want, pod.Spec.InitContainers[0].Ports)
}
