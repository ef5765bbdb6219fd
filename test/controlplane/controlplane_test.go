//go:build e2e

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func TestSchedulers(t *testing.T) {
	c := StartT(t, Options{})
	ctx := t.Context()
	require.NoError(t, c.StartScheduler(ctx, "plain", nil))
	names, err := c.CreateNodes(ctx, 3, NodeTemplate{
		Prefix: "worker-", Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
		Labels: map[string]string{"rack": "a"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"worker-0", "worker-1", "worker-2"}, names)
	node, err := c.Client().CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(1500), node.Status.Allocatable.Cpu().MilliValue())
	require.Equal(t, int64(110), node.Status.Allocatable.Pods().Value())
	require.Equal(t, corev1.ConditionTrue, node.Status.Conditions[0].Status)
	require.Equal(t, "a", node.Labels["rack"])
	require.Empty(t, node.Spec.Taints)

	createPod(t, c, testPod("fits", "plain", "1"))
	requirePod(t, c, "fits", isBound)
	createPod(t, c, testPod("too-large", "plain", "2"))
	requirePod(t, c, "too-large", func(pod *corev1.Pod) bool {
		return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	})

	err = c.StartScheduler(ctx, "two-profiles", []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 200, burst: 400}
profiles:
- schedulerName: left
- schedulerName: right
`))
	require.NoError(t, err)
	createPod(t, c, testPod("for-right", "right", "100m"))
	requirePod(t, c, "for-right", isBound)
	require.NoError(t, c.Kill("two-profiles"))
	createPod(t, c, testPod("for-left", "left", "100m"))
	require.NoError(t, c.StartPart(ctx, "two-profiles"))
	requirePod(t, c, "for-left", isBound)

	require.ErrorContains(t, c.StartScheduler(ctx, "plain", nil), `there is a process named "plain" already`)
	require.ErrorContains(t, c.StartScheduler(ctx, "broken", []byte("profiles: [")), `configuration of scheduler "broken"`)
	require.ErrorContains(t, c.StartScheduler(ctx, "unknown-field", []byte(
		"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofils: []")), "profils")
}

func TestRestartsKeepData(t *testing.T) {
	c := StartT(t, Options{})
	ctx := t.Context()
	_, err := c.CreateNodes(ctx, 20, NodeTemplate{})
	require.NoError(t, err)
	_, err = c.CreateNodes(ctx, 1, NodeTemplate{})
	require.True(t, apierrors.IsAlreadyExists(errors.Unwrap(err)), "%v", err)

	requireNodes := func() {
		t.Helper()
		nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, nodes.Items, 20)
	}
	require.NoError(t, c.Kill(APIServer))
	_, err = c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.Error(t, err, "the API server is down")
	require.NoError(t, c.StartPart(ctx, APIServer))
	requireNodes()
	require.NoError(t, c.Kill(Etcd))
	require.NoError(t, c.StartPart(ctx, Etcd))
	require.NoError(t, c.RestartPart(ctx, APIServer))
	requireNodes()
}

func TestKwok(t *testing.T) {
	c := StartT(t, Options{Workloads: true})
	ctx := t.Context()
	require.NoError(t, c.StartScheduler(ctx, "default-scheduler", nil))
	_, err := c.CreateNodes(ctx, 2, NodeTemplate{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue &&
					len(node.Spec.Taints) == 0 && node.Status.Allocatable.Cpu().Value() == 4 {
					ready++
				}
			}
		}
		return ready == 2
	}, Patience, pollInterval, "the controller manager takes the taint off")

	always := corev1.ContainerRestartPolicyAlways
	pod := testPod("runs", "", "100m")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "once", Image: "example.com/none"},
		{Name: "sidecar", Image: "example.com/none", RestartPolicy: &always},
	}
	createPod(t, c, pod)
	requirePod(t, c, "runs", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	require.NoError(t, c.Client().CoreV1().Pods("default").Delete(ctx, "runs", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := c.Client().CoreV1().Pods("default").Get(ctx, "runs", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, Patience, pollInterval, "kwok lets a deleted pod go")

	require.NoError(t, c.CreateNamespace(ctx, "batch"))
	template := testPod("", "", "100m").Spec
	template.RestartPolicy = corev1.RestartPolicyNever
	_, err = c.Client().BatchV1().Jobs("batch").Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		job, err := c.Client().BatchV1().Jobs("batch").Get(ctx, "job", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 1
	}, Patience, pollInterval, "kwok completes the pods of jobs")
}

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

func TestStartFailures(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx     context.Context
		bin     string
		options Options
		failure string
		log     string // the part whose log must be kept
	}{
		"a directory without binaries": {bin: "/nowhere", failure: "/nowhere/etcd"},
		"a flag the API server does not know": {
			options: Options{APIServerArgs: []string{"--no-such-flag"}},
			failure: "unknown flag: --no-such-flag", log: APIServer,
		},
		"a caller that gave up": {ctx: canceled, failure: "context canceled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.bin != "" {
				t.Setenv(BinDirEnv, test.bin)
			}
			test.options.Dir = t.TempDir()
			if test.ctx == nil {
				test.ctx = t.Context()
			}
			_, err := Start(test.ctx, test.options)
			require.ErrorContains(t, err, test.failure)
			require.Empty(t, childrenWith(t, test.options.Dir), "no process is left")
			logs, err := filepath.Glob(filepath.Join(test.options.Dir, "*", "logs", test.log+".log"))
			require.NoError(t, err)
			if test.log != "" {
				require.Len(t, logs, 1)
			}
			other, err := filepath.Glob(filepath.Join(test.options.Dir, "*", "pki"))
			require.NoError(t, err)
			require.Empty(t, other, "keys are removed, only logs stay")
		})
	}
}

// Who gives up while the control plane starts, with Ctrl-C say, has no use for the logs.
func TestStartGivenUpLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Options{Dir: dir})
		failed <- err
	}()
	require.Eventually(t, func() bool {
		logs, err := filepath.Glob(filepath.Join(dir, "*", "logs", Etcd+".log"))
		return err == nil && len(logs) == 1
	}, time.Minute, 5*time.Millisecond, "etcd is started")
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Empty(t, childrenWith(t, dir), "no process is left")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "no file is left")
}

// childrenWith lists the command lines of processes that mention a directory.
func childrenWith(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(line))
		}
	}
	return found
}
