package agreement

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// created returns a pod as the API server would have stored it, as far as its
// defaults go.
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

// TestDefaultsAgreeWithAPIServer compares what counts for capacity in a pod that
// the API server defaulted with what SetDefaults makes of it.
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
		want := created(t, p)
		resources.SetDefaults(p)
		requireSameAccount(t, want, p)
		again := want.DeepCopy()
		resources.SetDefaults(again)
		require.Equal(t, want, again, "a pod that has its defaults is not changed")
	})
}

// requireSameAccount compares the fields that count, quantities by value.
func requireSameAccount(t *rapid.T, want, got *v1.Pod) {
	containers := func(p *v1.Pod) []v1.Container {
		return append(p.Spec.InitContainers[:len(p.Spec.InitContainers):len(p.Spec.InitContainers)], p.Spec.Containers...)
	}
	for i, c := range containers(got) {
		requireSameList(t, containers(want)[i].Resources.Requests, c.Resources.Requests)
		require.Equal(t, containers(want)[i].Ports, c.Ports)
	}
	requireSameList(t, want.Spec.Overhead, got.Spec.Overhead)
	if want.Spec.Resources != nil {
		requireSameList(t, want.Spec.Resources.Requests, got.Spec.Resources.Requests)
	}
	table := resources.NewTable()
	wantRequest, gotRequest := resources.ForBoundPod(table, want), resources.ForBoundPod(table, got)
	require.Equal(t, wantRequest, gotRequest)
}

func requireSameList(t *rapid.T, want, got v1.ResourceList) {
	require.Len(t, got, len(want), "%v, want %v", got, want)
	for name, w := range want {
		g := got[name]
		require.Zero(t, w.Cmp(g), "%s is %s, want %s", name, g.String(), w.String())
	}
}
