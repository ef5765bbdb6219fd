package agreement

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// created returns a pod as the API server would have stored it, as far as its defaults go.
func created(t *rapid.T, p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	corev1.SetObjectDefaults_Pod(p)
	var internal core.Pod
	require.NoError(t, corev1.Convert_v1_Pod_To_core_Pod(p, &internal, nil))
	podutil.DefaultPodLevelResources(&internal)
	var stored v1.Pod
	require.NoError(t, corev1.Convert_core_Pod_To_v1_Pod(&internal, &stored, nil))
	return &stored
}

// TestDefaultsAgreeWithAPIServer compares what counts in a pod that the API server defaulted with what counts in it
// before.
func TestDefaultsAgreeWithAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pod(t, "new")
		p.Spec.HostNetwork = rapid.Bool().Draw(t, "host network")
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Limits = resourceList(t)
		}
		for i := range p.Spec.InitContainers {
			p.Spec.InitContainers[i].Resources.Limits = resourceList(t)
		}
		p.Status = v1.PodStatus{} // which a new pod has none of
		given, stored := p.DeepCopy(), created(t, p)
		table := resources.NewTable()
		want := resources.ForBoundPod(table, stored)
		require.Equal(t, want, resources.ForBoundPod(table, p))
		incoming, err := resources.ForIncomingPod(table, p)
		require.NoError(t, err)
		require.Equal(t, want, incoming)
		requireCounts(t, table, stored, &want)

		before := run(t, pod(t, "before"), "node")
		p.Status, stored.Status = before.Status, before.Status
		storedBefore := created(t, before)
		storedBefore.Status = before.Status
		want, wantGrows, err := resources.ForResizedPod(table, storedBefore, stored)
		require.NoError(t, err)
		resized, grows, err := resources.ForResizedPod(table, before, p)
		require.NoError(t, err)
		require.Equal(t, want, resized)
		require.Equal(t, wantGrows, grows)
		p.Status = given.Status
		require.Equal(t, given, p, "it may be shared")
	})
}

// requireCounts fails where a stored pod counts for something else than all that kube-scheduler makes of it.
func requireCounts(t *rapid.T, table *resources.Table, stored *v1.Pod, got *resources.Request) {
	info := framework.NewNodeInfo()
	info.AddPod(stored)
	want := used(info)
	for name, amount := range want {
		column, _ := table.Lookup(name)
		require.Equal(t, amount, got.Value(column), name)
	}
	require.Len(t, got.Amounts, len(want))
}
