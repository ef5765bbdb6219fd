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
