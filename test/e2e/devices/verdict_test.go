package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// verdict follows the pods of all namespaces and looks, after every single event, whether a device or a
// claim is with more than one bound pod. Events come in the order in which they were committed.
type verdict struct {
	client kubernetes.Interface

	mu     sync.Mutex // guards what follows
	pods   map[types.UID]*corev1.Pod
	events int
	broken []string
	ended  error  // why the watch ended, which makes the verdict worthless
	newest string // resource version of the last event
}

// startVerdict follows until the test ends.
func startVerdict(t *testing.T, client kubernetes.Interface) *verdict {
	t.Helper()
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	v := &verdict{client: client, pods: map[types.UID]*corev1.Pod{}, newest: list.ResourceVersion}
	for i := range list.Items {
		v.pods[list.Items[i].UID] = &list.Items[i]
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := v.follow(ctx)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.ended = err
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return v
}

// follow watches until ctx ends. The API server closes watches that it finds slow: the next one goes on where
// the last ended, so no event is left out.
func (v *verdict) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		v.mu.Lock()
		from := v.newest
		v.mu.Unlock()
		stream, err := v.client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: from})
		if err != nil {
			return fmt.Errorf("watching pods from resource version %s: %w", from, err)
		}
		for event := range stream.ResultChan() {
			v.take(event)
		}
		stream.Stop()
	}
	return ctx.Err()
}

func (v *verdict) take(event watch.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		v.find(fmt.Sprintf("the watch broke: %+v", event.Object))
		return
	}
	v.events++
	v.newest = pod.ResourceVersion
	if event.Type == watch.Deleted {
		delete(v.pods, pod.UID)
		return
	}
	v.pods[pod.UID] = pod
	for what, names := range v.holders() {
		if len(names) > 1 {
			slices.Sort(names)
			v.find(fmt.Sprintf("%s is with %s", what, strings.Join(names, " and ")))
		}
	}
}

// find notes what is wrong, once, however many events repeat it. v.mu is held.
func (v *verdict) find(what string) {
	if !slices.Contains(v.broken, what) {
		v.broken = append(v.broken, what)
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

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// catchUp returns when all that the API server knows now was looked at.
func (v *verdict) catchUp(t *testing.T) {
	t.Helper()
	list, err := v.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	versions := map[types.UID]string{}
	for i := range list.Items {
		versions[list.Items[i].UID] = list.Items[i].ResourceVersion
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		v.mu.Lock()
		defer v.mu.Unlock()
		assert.NoError(t, v.ended)
		for uid, version := range versions {
			at := v.newest // a pod that is not known any more was deleted, or has not been heard of yet
			if pod := v.pods[uid]; pod != nil {
				at = pod.ResourceVersion
			}
			order, err := resourceversion.CompareResourceVersion(at, version)
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, order, 0, "the watch is at %s, pod %s at %s", at, uid, version)
		}
	}, 10*time.Second, poll)
}

// seen returns what was found wrong.
func (v *verdict) seen(t *testing.T) []string {
	t.Helper()
	v.catchUp(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	require.NoError(t, v.ended)
	require.NotZero(t, v.events, "nothing was looked at")
	return slices.Clone(v.broken)
}

// requireGood fails if at any event a device or a claim was with two pods.
func (v *verdict) requireGood(t *testing.T) {
	t.Helper()
	require.Empty(t, v.seen(t))
}

// boundTo maps every device that a bound pod has to the pod's name.
func (v *verdict) boundTo(t *testing.T) map[string]string {
	t.Helper()
	v.catchUp(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[string]string{}
	for what, names := range v.holders() {
		if device, ok := strings.CutPrefix(what, "device "); ok {
			all[device] = strings.Join(names, " and ")
		}
	}
	return all
}
