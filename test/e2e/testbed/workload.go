package testbed

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workload is the label of the pods of a Workload.
const workload = "workload"

// workloadPoll is how often a Workload looks at its pods.
const workloadPoll = 100 * time.Millisecond

// Workload has so many pods be there, as a ReplicaSet does, and plays their kubelet.
type Workload struct {
	c     *Cluster
	name  string
	pod   func(name string) *corev1.Pod
	size  int
	grace time.Duration
	going map[types.UID]time.Time // when a pod was first seen to be deleted
	made  atomic.Int64
}

// StartWorkload creates pods, and others in the place of those that are deleted, until the test ends. A pod that is
// deleted is gone after a while, or at once where that is 0.
func (c *Cluster) StartWorkload(name string, size int, grace time.Duration, create func(name string) *corev1.Pod,
) *Workload {
	c.T.Helper()
	w := &Workload{c: c, name: name, pod: create, size: size, grace: grace, going: map[types.UID]time.Time{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.T.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			w.step(ctx)
			time.Sleep(workloadPoll)
		}
	})
	c.T.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w
}

// Evicted is how many of the pods were deleted so far, once others are there in their place.
func (w *Workload) Evicted() int {
	w.c.T.Helper()
	require.Eventually(w.c.T, func() bool {
		pods, err := w.list(w.c.T.Context())
		return err == nil && len(pods) == w.size &&
			!slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	}, Soon, workloadPoll)
	return int(w.made.Load()) - w.size
}

func (w *Workload) list(ctx context.Context) ([]corev1.Pod, error) {
	list, err := w.c.Client().CoreV1().Pods(w.c.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: workload + "=" + w.name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// step does what a ReplicaSet and kubelets do, once. Its errors are those of the end of the test.
func (w *Workload) step(ctx context.Context) {
	pods := w.c.Client().CoreV1().Pods(w.c.Namespace)
	all, err := w.list(ctx)
	if err != nil {
		return
	}
	there := 0
	for i := range all {
		pod := &all[i]
		if pod.DeletionTimestamp == nil {
			there++
			continue
		}
		since, ok := w.going[pod.UID]
		if !ok {
			since = time.Now()
			w.going[pod.UID] = since
		}
		if time.Since(since) >= w.grace {
			_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
		}
	}
	for ; there < w.size; there++ {
		pod := w.pod(w.name + "-" + strconv.FormatInt(w.made.Load(), 10))
		pod.Labels = maps.Clone(pod.Labels)
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[workload] = w.name
		if w.grace > 0 {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err == nil {
			w.made.Add(1)
		}
	}
}

// AwaitFull returns when so many of the pods are bound.
func (w *Workload) AwaitFull(bound int) {
	w.c.T.Helper()
	require.Eventually(w.c.T, func() bool {
		pods, err := w.list(w.c.T.Context())
		return err == nil && len(Bound(pods)) == bound
	}, Soon, workloadPoll)
}
