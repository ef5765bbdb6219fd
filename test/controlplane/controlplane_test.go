package controlplane

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMinimal(t *testing.T) {
	began := time.Now()
	c := StartT(t, Options{})
	t.Logf("started in %s", time.Since(began))
	ctx := t.Context()
	names, err := c.CreateNodes(ctx, 2, NodeTemplate{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}})
	require.NoError(t, err)
	node, err := c.Client().CoreV1().Nodes().Get(ctx, names[1], metav1.GetOptions{})
	require.NoError(t, err)
	t.Log(node)
	require.NoError(t, c.StartScheduler(ctx, "sched", nil))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{SchedulerName: "sched", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = c.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p, err := c.Client().CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != ""
	}, eventually, pollInterval)
	s := time.Now()
	require.NoError(t, c.Stop())
	t.Logf("stopped in %s", time.Since(s))
	_, err = os.Stat(c.Dir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

var _ kubernetes.Interface
var _ context.Context
