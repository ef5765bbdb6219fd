package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// newPod is a pod that asks for some CPU and, by its status, runs with 3.
func newPod(change func(*v1.Pod), cpu string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "42"},
		Spec: v1.PodSpec{
			SchedulerName: "s", Priority: ptr.To[int32](7),
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")},
		}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// read reads a pod, with a table of its own.
func read(t *testing.T, pod *v1.Pod) *Pod {
	t.Helper()
	info, err := Reader{Table: resources.NewTable()}.NewPod(pod)
	require.NoError(t, err)
	return info
}

func TestNew(t *testing.T) {
	type want struct {
		Pod

		cpu   int64
		bound bool
	}
	base := Pod{
		Ref: ledger.PodRef{Namespace: "ns", Name: "a", UID: "u"}, ResourceVersion: 42, Scheduler: "s", Priority: 7,
	}
	with := func(change func(*Pod)) Pod {
		info := base
		change(&info)
		return info
	}
	tests := map[string]struct {
		change func(*v1.Pod)
		want   want
	}{
		"a pending pod counts by its spec": {nil, want{base, 1000, false}},
		"a bound pod counts by its status too": {
			func(p *v1.Pod) { p.Spec.NodeName = "n" },
			want{with(func(i *Pod) { i.Node = "n" }), 3000, true},
		},
		"a pod that is being deleted uses its capacity still": {
			func(p *v1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "n", &metav1.Time{} },
			want{with(func(i *Pod) { i.Node, i.Deleting = "n", true }), 3000, true},
		},
		"a pod that succeeded uses nothing": {
			func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", v1.PodSucceeded },
			want{with(func(i *Pod) { i.Node, i.Finished = "n", true }), 3000, false},
		},
		"a pod that failed uses nothing": {
			func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", v1.PodFailed },
			want{with(func(i *Pod) { i.Node, i.Finished = "n", true }), 3000, false},
		},
		"a pod nobody created yet has no version": {
			func(p *v1.Pod) { p.ResourceVersion, p.UID = "", "" },
			want{with(func(i *Pod) { i.ResourceVersion, i.Ref.UID = 0, "" }), 1000, false},
		},
		"a version that is no number tells no order": {
			func(p *v1.Pod) { p.ResourceVersion = "abc" },
			want{with(func(i *Pod) { i.ResourceVersion = 0 }), 1000, false},
		},
		"a pod has an age": {
			func(p *v1.Pod) { p.CreationTimestamp = metav1.Unix(100, 0) },
			want{with(func(i *Pod) { i.Created = 100 }), 1000, false},
		},
		"no priority is 0": {
			func(p *v1.Pod) { p.Spec.Priority = nil },
			want{with(func(i *Pod) { i.Priority = 0 }), 1000, false},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			info := read(t, newPod(tt.change, "1"))
			assert.Equal(t, tt.want.cpu, info.Request.Value(resources.CPU))
			assert.Equal(t, tt.want.bound, info.Bound())
			tt.want.Request = info.Request
			if info.Node == "" {
				tt.want.Constraints = &Constraints{}
			}
			assert.Equal(t, tt.want.Pod, *info)
			assert.Equal(t, ledger.Placement{
				Pod: info.Ref, Node: "other", Request: info.Request, Scheduler: "s", Priority: info.Priority,
			}, info.Placement("other"))
		})
	}
}

func TestNewRefusesOnlyWhatIsNotBoundYet(t *testing.T) {
	_, err := Reader{Table: resources.NewTable()}.NewPod(newPod(nil, "-1"))
	assert.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu]")
	info := read(t, newPod(func(p *v1.Pod) { p.Spec.NodeName = "n" }, "-1"))
	assert.True(t, info.Bound())
}
