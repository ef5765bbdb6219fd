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

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// verdict looks, after every single event of a pod, whether a device or a claim is with more than one bound
// pod, or a node has more GPUs in use, by count and by claims together, than it offers. Events come in the order in which they were committed.
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
func gpusOf(pod *corev1.Pod) int64 { return max(gpusByCount(pod), int64(len(split(given(pod))))) }

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

// caughtUp locks what was found, all that the API server knows now included.
func (v *verdict) caughtUp(t *testing.T) (unlock func()) {
	t.Helper()
	require.NoError(t, v.watcher.CatchUp(t.Context()))
	require.Zero(t, v.watcher.Gaps(), "events were lost: the verdict is not complete")
	v.mu.Lock()
	return v.mu.Unlock
}

// seen returns what was found wrong.
func (v *verdict) seen(t *testing.T) []string {
	t.Helper()
	defer v.caughtUp(t)()
	return slices.Clone(v.broken)
}

// requireGood fails if at any event a device or a claim was with two pods.
func (v *verdict) requireGood(t testing.TB) {
	t.Helper()
	require.Empty(t, v.seen(t.(*testing.T)))
}

// boundTo maps every device that a bound pod has to the pod's name.
func (v *verdict) boundTo(t *testing.T) map[string]string {
	t.Helper()
	defer v.caughtUp(t)()
	all := map[string]string{}
	for what, names := range v.holders() {
		if device, ok := strings.CutPrefix(what, "device "); ok {
			all[device] = strings.Join(names, " and ")
		}
	}
	return all
}
