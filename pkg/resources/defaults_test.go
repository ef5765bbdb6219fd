package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// Each pod counts for what it comes to, and is left as it is.
func TestPodsCountAsStored(t *testing.T) {
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
				InitContainers: []v1.Container{limited(nil, list("cpu", "3"))},
				Containers:     []v1.Container{limited(nil, list("cpu", "2"))},
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
			podLevel(nil, list("cpu", "4", "memory", "9"), limited(list("cpu", "1"), nil)),
			amounts{"pods": 1, "cpu": 1000, "memory": 9},
		},
		"containers' defaulted requests come before pod-level limits": {
			podLevel(nil, list("cpu", "4"), limited(nil, list("cpu", "1"))), amounts{"pods": 1, "cpu": 1000},
		},
		"hugepages follow the containers' limits": {
			podLevel(list("cpu", "1"), nil, limited(nil, list("hugepages-2Mi", "4Mi"))),
			amounts{"pods": 1, "cpu": 1000, "hugepages-2Mi": 4 << 20},
		},
		"hugepages follow the pod's limit before the containers' requests": {
			podLevel(nil, list("hugepages-2Mi", "8Mi"), limited(nil, list("hugepages-2Mi", "4Mi"))),
			amounts{"pods": 1, "hugepages-2Mi": 8 << 20},
		},
		"empty pod-level resources change nothing": {
			podLevel(nil, nil, limited(nil, list("cpu", "1"))),
			amounts{"pods": 1, "cpu": 1000},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			given := tt.pod.DeepCopy()
			table := NewTable()
			bound := ForBoundPod(table, tt.pod)
			assert.Equal(t, tt.want, amounts(named(table, bound.Amounts)))
			incoming, err := ForIncomingPod(table, tt.pod)
			require.NoError(t, err)
			assert.Equal(t, bound, incoming)
			resized, grows, err := ForResizedPod(table, podOf(), tt.pod)
			require.NoError(t, err)
			assert.True(t, grows)
			assert.Equal(t, bound, resized)
			_, grows, err = ForResizedPod(table, tt.pod, tt.pod)
			require.NoError(t, err)
			assert.False(t, grows)
			assert.Equal(t, given, tt.pod, "a cache may share it")

			stored := asStored(tt.pod)
			again := stored.DeepCopy()
			(&filler{write: true}).fill(again)
			assert.Equal(t, stored, again, "a second time changes nothing")
			assert.Same(t, stored, asStored(stored))
		})
	}
}

// What would be filled in is counted as what it comes to, also where it makes no sense.
func TestWhatIsFilledInIsChecked(t *testing.T) {
	pod := podOf(v1.Container{Resources: v1.ResourceRequirements{Limits: list("cpu", "-1")}})
	_, err := ForIncomingPod(NewTable(), pod)
	assert.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu] is -1")
	_, _, err = ForResizedPod(NewTable(), podOf(), pod)
	assert.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu] is -1")
}
