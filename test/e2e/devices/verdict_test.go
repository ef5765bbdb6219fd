package devices

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// verdict looks, after every single event of a pod, whether a device or a claim is with more than one bound pod, or a
// node has more GPUs in use, by count and by claims together, than it offers. Events come in the order in which they
// were committed.
type verdict struct {
	watcher *clusterload.Watcher
	gpus    int64 // of each node; 0: what is asked for by count is not looked at

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
		if len(names) > 1 {
			v.blame(fmt.Sprintf("%s is with %s", what, strings.Join(names, " and ")))
		}
	}
	for node, used := range v.used() {
		if v.gpus > 0 && used > v.gpus {
			v.blame(fmt.Sprintf("%s has %d GPUs in use of %d", node, used, v.gpus))
		}
	}
}

// blame notes what is wrong: once, however many events repeat it. v.mu is held.
func (v *verdict) blame(found string) {
	if !slices.Contains(v.broken, found) {
		v.broken = append(v.broken, found)
	}
}

// used adds up the GPUs of the bound pods by node. v.mu is held.
func (v *verdict) used() map[string]int64 {
	used := map[string]int64{}
	for _, pod := range v.pods {
		if pod.Spec.NodeName != "" {
			used[pod.Spec.NodeName] += gpusOf(pod)
		}
	}
	return used
}

// gpusByCount is how many GPUs a pod asks for by count.
func gpusByCount(pod *corev1.Pod) int64 {
	count := pod.Spec.Containers[0].Resources.Requests[testbed.GPU]
	return count.Value()
}

// gpusOf is how many GPUs a bound pod has: those it asks for by count, or those that it was told of.
func gpusOf(pod *corev1.Pod) int64 { return max(gpusByCount(pod), int64(len(idsOf(pod)))) }

// holders maps devices and claims to the bound pods that have them. v.mu is held.
func (v *verdict) holders() map[string][]string {
	all := map[string][]string{}
	for _, pod := range v.pods {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, id := range idsOf(pod) {
			what := "device " + pod.Spec.NodeName + " " + id
			all[what] = append(all[what], pod.Name)
		}
		for _, name := range claimsOf(pod) {
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

	v = &verdict{gpus: 2, pods: map[types.UID]*corev1.Pod{}}
	byCount := on("by-count", "a", "", "")
	byCount.Spec.Containers[0].Resources.Requests[testbed.GPU] = resource.MustParse("1")
	v.look(byCount, false)
	v.look(on("by-claim", "a", "x=c;y=c", "x=gpu-0;y=gpu-0"), false)
	require.Empty(t, v.broken)
	v.look(on("one-more", "a", "d", "gpu-1"), false)
	require.Equal(t, []string{"a has 3 GPUs in use of 2"}, v.broken)
}
