package resources

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// list reads quantities in pairs of name and value.
func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests v1.ResourceList) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests}}
}

func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
}

// named returns a request's amounts by resource name.
func named(t *Table, amounts []Amount) map[v1.ResourceName]int64 {
	byName := map[v1.ResourceName]int64{}
	for _, a := range amounts {
		byName[t.Name(a.Column)] = a.Value
	}
	return byName
}

type amounts map[v1.ResourceName]int64

// TestUnlistedResources shows that decisions do not make the table grow.
func TestUnlistedResources(t *testing.T) {
	table := NewTable()
	pod := podOf(container("a", list("example.com/b", "2", "example.com/a", "1", "cpu", "1", "weird", "3",
		"example.com/zero", "0")))
	req, err := ForIncomingPod(table, pod)
	require.NoError(t, err)
	assert.Equal(t, []NamedAmount{{"example.com/a", 1}, {"example.com/b", 2}}, req.Unlisted)
	assert.Equal(t, 4, table.Len())

	_, ok := table.Offer("example.com/a")
	require.True(t, ok)
	listed, err := ForIncomingPod(table, pod)
	require.NoError(t, err)
	assert.Equal(t, []NamedAmount{{"example.com/b", 2}}, listed.Unlisted)
	assert.Equal(t, int64(1), listed.Value(4))
	assert.False(t, req.Equal(&listed))
}

func TestRefusedRequests(t *testing.T) {
	sum := func(a, b string) *v1.Pod {
		return podOf(container("a", list("memory", a)), container("b", list("memory", b)))
	}
	tests := map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"a container": {
			podOf(container("a", nil), container("b", list("cpu", "-1"))),
			"spec.containers[1].resources.requests[cpu] is -1",
		},
		"hidden by another": {
			podOf(container("a", list("cpu", "2")), container("b", list("cpu", "-1"))),
			"spec.containers[1].resources.requests[cpu]",
		},
		"an init container": {
			&v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{container("i", list("memory", "-1"))}}},
			"spec.initContainers[0].resources.requests[memory]",
		},
		"pod level": {
			&v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: list("cpu", "-1m")}}},
			"spec.resources.requests[cpu]",
		},
		"overhead":                {&v1.Pod{Spec: v1.PodSpec{Overhead: list("cpu", "-1")}}, "spec.overhead[cpu]"},
		"a sum beyond int64":      {sum("9223372036854775807", "1"), "for memory is too large"},
		"a fraction beyond int64": {sum("9223372036854775807", "1m"), "for memory is too large"},
		"milli-CPU beyond int64":  {podOf(container("a", list("cpu", "9223372036854776"))), "for cpu is too large"},
		"a quantity that wraps to 1": {
			podOf(container("a", list("memory", "-18446744073709551615"))),
			"must not be negative",
		},
		"a resource nobody has a column": {
			podOf(container("a", list("example.com/x", "1e30"))),
			"for example.com/x is too large",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ForIncomingPod(NewTable(), tt.pod)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// TestBoundPodsNeverFail: what is on a node counts, whatever it says.
func TestBoundPodsNeverFail(t *testing.T) {
	table := NewTable()
	tests := map[string]struct {
		pod  *v1.Pod
		want amounts
	}{
		"a sum saturates": {
			podOf(container("a", list("memory", "9223372036854775807")), container("b", list("memory", "1"))),
			amounts{"pods": 1, "memory": math.MaxInt64},
		},
		"milli-CPU saturates": {
			podOf(container("a", list("cpu", "9223372036854775807"))),
			amounts{"pods": 1, "cpu": math.MaxInt64},
		},
		"negative counts nothing": {
			podOf(container("a", list("cpu", "-5", "memory", "-18446744073709551615"))), amounts{"pods": 1},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req := ForBoundPod(table, tt.pod)
			assert.Equal(t, tt.want, amounts(named(table, req.Amounts)))
		})
	}
}

// resized is a pod whose container asks for some CPU, was allocated some and is
// run with some; empty means the status does not tell.
func resized(spec, allocated, actuated, pending string) *v1.Pod {
	pod := podOf(container("a", list("cpu", spec)))
	status := v1.ContainerStatus{Name: "a"}
	if allocated != "" {
		status.AllocatedResources = list("cpu", allocated)
	}
	if actuated != "" {
		status.Resources = &v1.ResourceRequirements{Requests: list("cpu", actuated)}
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{status}
	if pending != "" {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: pending}}
	}
	return pod
}

// That what is asked for, allocated and actuated counts as for kube-scheduler is shown by test/agreement.
func TestInPlaceResize(t *testing.T) {
	t.Run("infeasible: what is asked anew counts before the kubelet has looked at it", func(t *testing.T) {
		pod := resized("3", "2", "1", v1.PodReasonInfeasible)
		pod.Generation, pod.Status.Conditions[0].ObservedGeneration = 8, 7
		req := ForBoundPod(NewTable(), pod)
		assert.Equal(t, int64(3000), req.Value(CPU))
		pod.Status.Conditions[0].ObservedGeneration = 8
		req = ForBoundPod(NewTable(), pod)
		assert.Equal(t, int64(2000), req.Value(CPU))
	})
	t.Run("a resize may turn out to be feasible", func(t *testing.T) {
		for pending, want := range map[string]int64{"": 3000, v1.PodReasonDeferred: 3000, v1.PodReasonInfeasible: 3000} {
			req, grows, err := ForResizedPod(NewTable(), resized("3", "2", "1", pending), resized("3", "2", "1", pending))
			require.NoError(t, err)
			assert.Equal(t, want, req.Value(CPU), pending)
			assert.Equal(t, pending == v1.PodReasonInfeasible, grows, pending)
		}
		req, grows, err := ForResizedPod(NewTable(), resized("4", "2", "4", ""), resized("1", "2", "4", ""))
		require.NoError(t, err)
		assert.Equal(t, int64(4000), req.Value(CPU))
		assert.False(t, grows)
		_, grows, err = ForResizedPod(NewTable(), podOf(container("a", list("cpu", "1"))),
			podOf(container("a", list("cpu", "1", "memory", "1Ki"))))
		require.NoError(t, err)
		assert.True(t, grows, "of what it had none of")
		_, _, err = ForResizedPod(NewTable(), resized("2", "2", "1", ""), resized("-1", "2", "1", ""))
		require.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu]")
	})
}

func TestAllocatable(t *testing.T) {
	table := NewTable()
	node := &v1.Node{Status: v1.NodeStatus{
		Allocatable: list("cpu", "1500m", "memory", "1Ki", "pods", "110", "example.com/gpu", "8", "example.com/none", "0",
			"example.com/less", "-1", "odd", "3", "ephemeral-storage", "1500m", "hugepages-1Gi", "99999999999999999999"),
		Capacity: list("cpu", "64"),
	}}
	got := Allocatable(table, node)
	assert.Equal(t, amounts{
		"cpu": 1500, "memory": 1024, "pods": 110, "example.com/gpu": 8, "ephemeral-storage": 2,
		"hugepages-1Gi": math.MaxInt64,
	}, amounts(named(table, got)))
	for i := 1; i < len(got); i++ {
		assert.Less(t, got[i-1].Column, got[i].Column)
	}
}

func TestToleratesUnschedulable(t *testing.T) {
	for effect, want := range map[v1.TaintEffect]bool{
		"": true, v1.TaintEffectNoSchedule: true,
		v1.TaintEffectNoExecute: false,
	} {
		toleration := v1.Toleration{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists, Effect: effect}
		pod := &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{toleration}}}
		req, err := ForIncomingPod(NewTable(), pod)
		require.NoError(t, err)
		assert.Equal(t, want, req.ToleratesUnschedulable)
		assert.Equal(t, want, ForBoundPod(NewTable(), pod).ToleratesUnschedulable)
	}
}

// A request is kept with its pod, and nodes that offer what it names come later.
func TestRelisted(t *testing.T) {
	table := NewTable()
	req, err := ForIncomingPod(table, &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		container("main", list("cpu", "1", "example.com/gpu", "2", "example.com/fpga", "3")),
	}}})
	require.NoError(t, err)
	require.Len(t, req.Unlisted, 2)
	assert.Same(t, &req, req.Relisted(table), "nothing is new")
	before := req
	column, ok := table.Offer("example.com/gpu")
	require.True(t, ok)
	fresh := req.Relisted(table)
	assert.EqualValues(t, 2, fresh.Value(column))
	assert.Equal(t, []NamedAmount{{Name: "example.com/fpga", Value: 3}}, fresh.Unlisted)
	assert.Equal(t, before, req, "the request is shared and stays as it was")
	for i := 1; i < len(fresh.Amounts); i++ {
		assert.Less(t, fresh.Amounts[i-1].Column, fresh.Amounts[i].Column)
	}
}

func TestWhatTwoPodsAskForTogether(t *testing.T) {
	a := &Request{
		Amounts: []Amount{{CPU, 1000}, {Pods, 1}}, Ports: []HostPort{{PortKey: PortKey{Port: 80}}},
		ToleratesUnschedulable: true,
	}
	b := &Request{Amounts: []Amount{{CPU, 500}, {Memory, 7}, {Pods, 1}}, Unlisted: []NamedAmount{{"example.com/gpu", 1}}}
	sum := a.Plus(b)
	assert.Equal(t, int64(1500), sum.Value(CPU))
	assert.Equal(t, int64(7), sum.Value(Memory))
	assert.Equal(t, int64(2), sum.Value(Pods))
	assert.True(t, sum.Equal(b.Plus(a)))
	assert.Equal(t, b.Unlisted, sum.Unlisted)
	assert.Equal(t, a.Ports, sum.Ports)
	assert.False(t, sum.ToleratesUnschedulable)
	assert.Equal(t, int64(1000), a.Value(CPU), "requests are shared and not changed")
}

// What DRA gave a pod that asks for it by count its status says, once it is bound.
func TestByDRA(t *testing.T) {
	table := NewTable()
	pod := &v1.Pod{
		Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			"example.com/gpu": resource.MustParse("2"), "example.com/nic": resource.MustParse("1"),
		}}}}},
		Status: v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
			RequestMappings: []v1.ContainerExtendedResourceRequest{
				{ResourceName: "example.com/gpu"}, {ResourceName: "example.com/gpu"}, {ResourceName: "example.com/unknown"},
			},
		}},
	}
	bound := ForBoundPod(table, pod)
	column, ok := table.Lookup("example.com/gpu")
	require.True(t, ok)
	assert.Equal(t, []Column{column}, bound.ByDRA)
	assert.EqualValues(t, 2, bound.Value(column), "it counts, as for kube-scheduler")
	pod.Status.ExtendedResourceClaimStatus = nil
	before := ForBoundPod(table, pod)
	assert.False(t, before.Equal(&bound))
}

// A pod may be read, given devices, before any node is known that has something to do with them.
func TestByDRABeforeThereIsANode(t *testing.T) {
	table := NewTable()
	pod := &v1.Pod{
		Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			"example.com/gpu": resource.MustParse("2"),
		}}}}},
		Status: v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
			RequestMappings: []v1.ContainerExtendedResourceRequest{{ResourceName: "example.com/gpu"}},
		}},
	}
	request, err := ForIncomingPod(table, pod)
	require.NoError(t, err)
	column, _ := table.Offer("example.com/gpu")
	assert.Equal(t, []Column{column}, request.Relisted(table).ByDRA)
	assert.EqualValues(t, 2, request.Relisted(table).Value(column))
	assert.Empty(t, request.Without(func(c Column) bool { return c == column }).ByDRA)
}
