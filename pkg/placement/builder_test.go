package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// A question has all that counts of a pod: what it requests, by the columns there
// are by now, the slots it may use and its devices.
func TestQuestion(t *testing.T) {
	l := ledger.New(ledger.Options{})
	pod, err := cluster.Reader{Table: l.Table()}.NewPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7",
			Annotations: map[string]string{
				v1alpha1.ReservationIndexAnnotation: "i", v1alpha1.ExtendedResourceClaimsAnnotation: "c",
			},
		},
		Spec: v1.PodSpec{
			SchedulerName: "s", Priority: new(int32(3)),
			Containers: []v1.Container{{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("2")},
			}}},
		},
	})
	require.NoError(t, err)
	column, ok := l.Table().Offer("example.com/gpu")
	require.True(t, ok)
	m := &placement.Matcher{}
	require.NoError(t, m.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: "a"}},
			Consumers: &v1alpha1.ConsumerSpec{Index: "i"},
		},
	}))
	asked := &ledger.DeviceRequest{Err: pod.Devices.Claims[0]}
	maker := &placement.Builder{
		Reader: cluster.Reader{Table: l.Table()}, Matcher: m,
		Devices: func(of *cluster.Pod) *ledger.DeviceRequest {
			assert.Same(t, pod, of)
			return asked
		},
	}

	got := maker.For(pod, "node-1")
	assert.Equal(t, pod.Ref, got.Pod)
	assert.Equal(t, "node-1", got.Node)
	assert.Equal(t, "s", got.Scheduler)
	assert.EqualValues(t, 3, got.Priority)
	assert.EqualValues(t, 2, got.Request.Value(column))
	assert.Empty(t, got.Request.Unlisted)
	assert.NotEmpty(t, pod.Request.Unlisted, "the pod is shared and not changed")
	assert.Equal(t, []ledger.SlotRef{{Namespace: "ns", Name: "r", Slot: "a"}}, got.Slots)
	assert.Same(t, asked, got.Devices)
	assert.False(t, got.Preempt)

	observed := maker.Observation(pod)
	assert.Same(t, asked, observed.Devices)
	assert.EqualValues(t, 7, observed.ResourceVersion)
}

// What was decided of a pod holds for another state of it unless something has changed that counts.
func TestSame(t *testing.T) {
	l := ledger.New(ledger.Options{})
	maker := &placement.Builder{Reader: cluster.Reader{Table: l.Table()}}
	read := func(change func(p *v1.Pod)) *cluster.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7",
				Annotations: map[string]string{
					v1alpha1.ReservationIndexAnnotation: "i", v1alpha1.ExtendedResourceClaimsAnnotation: "c",
				},
			},
			Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("2")},
			}}}},
		}
		change(p)
		pod, err := maker.Reader.NewPod(p)
		require.NoError(t, err)
		return pod
	}
	before := read(func(*v1.Pod) {})
	_, ok := l.Table().Offer("example.com/gpu")
	require.True(t, ok)
	for name, tt := range map[string]struct {
		change func(p *v1.Pod)
		same   bool
	}{
		"its version": {func(p *v1.Pod) { p.ResourceVersion = "8" }, true},
		"a condition": {func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable},
			}
		}, true},
		"its nomination": {func(p *v1.Pod) { p.Status.NominatedNodeName = "a" }, true},
		"an annotation":  {func(p *v1.Pod) { p.Annotations["example.com/note"] = "x" }, true},
		"what it asks for": {
			func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
			false,
		},
		"its index": {func(p *v1.Pod) { p.Annotations[v1alpha1.ReservationIndexAnnotation] = "j" }, false},
		"its claims": {
			func(p *v1.Pod) { delete(p.Annotations, v1alpha1.ExtendedResourceClaimsAnnotation) },
			false,
		},
		"the devices it copied": {func(p *v1.Pod) { p.Annotations[v1alpha1.ExtendedResourcesAnnotation] = "gpu-9" }, false},
		"its labels":            {func(p *v1.Pod) { p.Labels = map[string]string{"app": "x"} }, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.same, maker.Same(before, read(tt.change))) })
	}
}
