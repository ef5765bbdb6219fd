//go:build e2e

package controlplane

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod(name, scheduler, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/none",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
				},
			}},
		},
	}
}

func createPod(t *testing.T, c *ControlPlane, pod *corev1.Pod) {
	t.Helper()
	_, err := c.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

// requirePod waits until the pod is as wanted, and shows its status when it never is.
func requirePod(t *testing.T, c *ControlPlane, name string, wanted func(*corev1.Pod) bool) {
	t.Helper()
	var pod *corev1.Pod
	var err error
	require.Eventually(t, func() bool {
		pod, err = c.Client().CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && wanted(pod)
	}, Patience, pollInterval)
}

func isBound(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

func TestStopLeavesNothing(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	require.NoError(t, c.StartScheduler(t.Context(), "s", nil))
	_, err = c.StartProcess(t.Context(), ProcessOptions{Path: "/bin/sleep", Args: []string{"1000"}})
	require.NoError(t, err)
	_, err = c.StartFaultProxy()
	require.NoError(t, err)
	// A frozen scheduler cannot answer SIGTERM: Stop has to kill it.
	scheduler, err := c.Process("s")
	require.NoError(t, err)
	scheduler.options.StopTimeout = 200 * time.Millisecond
	require.NoError(t, c.Kill(Etcd))
	pids := map[string]int{}
	for _, name := range []string{APIServer, "s", "sleep"} {
		p, err := c.Process(name)
		require.NoError(t, err)
		require.NotZero(t, p.PID())
		pids[name] = p.PID()
	}
	require.NoError(t, c.StartPart(t.Context(), Etcd))

	require.NoError(t, c.Stop())
	require.NoError(t, c.Stop(), "stopping again does nothing")
	for name, pid := range pids {
		require.False(t, exists(pid), "%s is still there", name)
	}
	_, err = os.Stat(c.Dir())
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = c.StartProcess(t.Context(), ProcessOptions{Path: "/bin/sleep", Args: []string{"1000"}})
	require.ErrorIs(t, err, errStopped)
	_, err = c.StartFaultProxy()
	require.ErrorIs(t, err, errStopped)
	require.ErrorIs(t, c.StartScheduler(t.Context(), "late", nil), errStopped)
}
