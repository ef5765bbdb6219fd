package devices

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
)

// verdict looks, after every single event of a pod, whether a device or a claim is with more than one bound
// pod. Events come in the order in which they were committed.
type verdict struct {
	watcher *clusterload.Watcher

	mu     sync.Mutex // guards what follows
	pods   map[types.UID]*corev1.Pod
	broken []string
}

// look takes in one event.
func (v *verdict) look(pod *corev1.Pod, gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if gone {
		delete(v.pods, pod.UID)
		return
	}
	v.pods[pod.UID] = pod
	for what, names := range v.holders() {
		slices.Sort(names)
		found := fmt.Sprintf("%s is with %s", what, strings.Join(names, " and "))
		if len(names) > 1 && !slices.Contains(v.broken, found) { // once, however many events repeat it
			v.broken = append(v.broken, found)
		}
	}
}

// holders maps devices and claims to the bound pods that have them. v.mu is held.
func (v *verdict) holders() map[string][]string {
	all := map[string][]string{}
	for _, pod := range v.pods {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, id := range split(given(pod)) {
			what := "device " + pod.Spec.NodeName + " " + id
			all[what] = append(all[what], pod.Name)
		}
		for _, name := range split(pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation]) {
			what := "claim " + pod.Namespace + "/" + name
			all[what] = append(all[what], pod.Name)
		}
	}
	return all
}

// requireGood fails if at any event a device or a claim was with two pods.
func (v *verdict) requireGood(t testing.TB) {
	t.Helper()
	require.NoError(t, v.watcher.CatchUp(t.Context()))
	require.Zero(t, v.watcher.Gaps(), "events were lost: the verdict is not complete")
	v.mu.Lock()
	defer v.mu.Unlock()
	require.Empty(t, v.broken)
}

// What was given out twice is found, although one of the pods is gone again.
func TestVerdict(t *testing.T) {
	v := &verdict{pods: map[types.UID]*corev1.Pod{}}
	on := func(name, node, claims, devices string) *corev1.Pod {
		pod := newPod(name, scheduler, claims, v1alpha1.ExtendedResourcesAnnotation, devices)
		pod.UID, pod.Spec.NodeName = types.UID(name), node
		return pod
	}
	finished := on("finished", "a", "c", "gpu-0")
	finished.Status.Phase = corev1.PodSucceeded
	for _, pod := range []*corev1.Pod{
		finished, on("p", "a", "c", "gpu-0,gpu-1"), on("q", "b", "d", "gpu-1"), on("waits", "", "c", ""),
	} {
		v.look(pod, false)
	}
	require.Empty(t, v.broken)
	for _, pod := range []*corev1.Pod{on("thief", "a", "e", "gpu-1"), on("sharer", "c", "d", "gpu-9")} {
		v.look(pod, false)
		v.look(pod, true)
	}
	require.Equal(t, []string{
		"device a gpu-1 is with p and thief", "claim " + namespace + "/d is with q and sharer",
	}, v.broken)
}
