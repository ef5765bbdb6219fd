package e2e

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// nobody is the schedulerName of pods that no running scheduler takes.
const nobody = "nobody"

// writers is how many requests a test sends side by side.
const writers = 16

func requests(cpu string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
}

func requestsOf(cpus ...string) []corev1.ResourceList {
	lists := make([]corev1.ResourceList, len(cpus))
	for i, cpu := range cpus {
		lists[i] = requests(cpu)
	}
	return lists
}

// mixedSizes do not divide a node's 4 CPUs evenly, so that gaps of many sizes come up.
var mixedSizes = requestsOf("500m", "1", "750m", "1500m", "250m")

func newPod(name, scheduler, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []corev1.Container{{
				Name: "main", Image: "example.invalid/not-pulled",
				Resources: corev1.ResourceRequirements{Requests: requests(cpu)},
			}},
		},
	}
}

func newPods(n int, prefix, scheduler, cpu string) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = newPod(prefix+"-"+strconv.Itoa(i), scheduler, cpu)
	}
	return pods
}

// create creates pods and returns them as the API server has them, in the same order.
func (c *cluster) create(pods ...*corev1.Pod) []*corev1.Pod {
	c.t.Helper()
	created := make([]*corev1.Pod, len(pods))
	group, ctx := errgroup.WithContext(c.t.Context())
	group.SetLimit(writers)
	for i, pod := range pods {
		group.Go(func() (err error) {
			created[i], err = c.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(c.t, group.Wait())
	return created
}

// createThroughFaults creates pods from an API server that is away at times.
func (c *cluster) createThroughFaults(ctx context.Context, pods []*corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, pod := range pods {
		group.Go(func() error {
			var last error
			err := wait.PollUntilContextTimeout(ctx, poll, late, true, func(ctx context.Context) (bool, error) {
				_, last = c.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
				return last == nil || apierrors.IsAlreadyExists(last), nil
			})
			if err != nil {
				return fmt.Errorf("create pod %s: %w", pod.Name, last)
			}
			return nil
		})
	}
	return group.Wait()
}

func (c *cluster) get(t require.TestingT, pod *corev1.Pod) *corev1.Pod {
	got, err := c.Client().CoreV1().Pods(pod.Namespace).Get(c.t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return got
}

func (c *cluster) list(t require.TestingT) []corev1.Pod {
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func (c *cluster) delete(pod *corev1.Pod) {
	c.t.Helper()
	now := int64(0)
	require.NoError(c.t, c.Client().CoreV1().Pods(pod.Namespace).Delete(c.t.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// bindDirectly binds a pod at the API server, past GlobalReserve.
func (c *cluster) bindDirectly(pod *corev1.Pod, node string) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Pods(pod.Namespace).Bind(c.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}

// awaitBound waits until a pod is bound and returns its node and when that was seen.
func (c *cluster) awaitBound(pod *corev1.Pod, within time.Duration) (string, time.Time) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	for {
		changed := c.watcher.Changed()
		if got := c.get(c.t, pod); got.Spec.NodeName != "" {
			return got.Spec.NodeName, time.Now()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(c.t, "pod is not bound", "%s/%s after %s: %+v", pod.Namespace, pod.Name, within,
				c.get(c.t, pod).Status.Conditions)
		}
	}
}

// isRefused tells whether a kube-scheduler has looked at a pod and found no node.
func isRefused(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return true
		}
	}
	return false
}
