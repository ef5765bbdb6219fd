package clusterload

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podWriters is how many pods are created side by side.
const podWriters = 16

// CreatePods creates pods as fast as the API server takes them, about in the order given.
func CreatePods(ctx context.Context, client kubernetes.Interface, pods []*corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(podWriters)
	for _, pod := range pods {
		group.Go(func() error {
			if _, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// DeletePods deletes every pod of a namespace without a grace period, as there is no kubelet that
// could end it, and returns when they are gone.
func DeletePods(ctx context.Context, client kubernetes.Interface, namespace string) error {
	api := client.CoreV1().Pods(namespace)
	for {
		now := int64(0)
		err := api.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("delete the pods of namespace %s: %w", namespace, err)
		}
		left, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
		}
		if len(left.Items) == 0 {
			return nil
		}
		pause(ctx)
	}
}
