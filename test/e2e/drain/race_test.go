//go:build e2e

package drain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// judge sees every event of a pod: which pods were found to fit nowhere, and of which app more than one was away.
type judge struct {
	mu      sync.Mutex
	began   bool
	apps    map[string]int             // with their replicas
	running map[string]map[string]bool // by app: the pods that run
	waited  map[string]string          // pods of apps, and what their schedulers said
	broken  []string
}

func (j *judge) look(pod *corev1.Pod, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := pod.Labels["app"]
	if j.apps[name] == 0 || !j.began {
		return
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			j.waited[pod.Name] = c.Message
		}
	}
	if pod.DeletionTimestamp == nil && !gone && pod.Status.Phase == corev1.PodRunning {
		j.running[name][string(pod.UID)] = true
		return
	}
	delete(j.running[name], string(pod.UID))
	if n := len(j.running[name]); n < j.apps[name]-1 {
		j.broken = append(j.broken, fmt.Sprintf("%s had %d pods of %d", name, n, j.apps[name]))
	}
}

// begin starts to judge, once all pods run.
func (j *judge) begin(b *bench, apps []app) {
	running := map[string]map[string]bool{}
	for _, a := range apps {
		running[a.name] = map[string]bool{}
		for _, pod := range b.pods(a.name) {
			running[a.name][string(pod.UID)] = true
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began, j.running, j.waited = true, running, map[string]string{}
}

func (j *judge) waits() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.waited
}

// apps use 70% of 20 nodes with 16 CPUs, which is 90% of what is left when four of them are drained.
func apps() (all []app) {
	add := func(n int, a app) {
		for i := range n {
			one := a
			one.name = fmt.Sprintf("%s-%d", a.name, i)
			all = append(all, one)
		}
	}
	add(4, app{name: "web-a", kind: "Deployment", scheduler: scheduler, replicas: 9, cpu: "2"})
	add(4, app{name: "web-b", kind: "Deployment", scheduler: "second-scheduler", replicas: 9, cpu: "2"})
	add(4, app{name: "db", kind: "StatefulSet", scheduler: "second-scheduler", replicas: 7, cpu: "2"})
	// A Job makes another pod 10 seconds after its first is evicted, and 20 after its second.
	add(4, app{name: "batch", kind: "Job", scheduler: scheduler, replicas: 2, cpu: "2"})
	add(4, app{name: "gang", kind: "Job", scheduler: gangScheduler, replicas: 2, cpu: "2"})
	return all
}

// TestRace drains 4 of 20 nodes while other pods come for whatever is free, by kubectl drain, after which pods wait for
// capacity, and by kubectl reserve drain, where none does.
func TestRace(t *testing.T) {
	t.Run("kubectl drain", func(t *testing.T) {
		b, j, drained := raced(t)
		ctx, stop := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, filepath.Join(b.BinDir(), "kubectl"),
			append([]string{"drain", "--ignore-daemonsets"}, drained...)...)
		admin, err := b.AdminKubeconfig()
		require.NoError(t, err)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+admin)
		require.NoError(t, cmd.Start())
		b.Eventually(func(t *assert.CollectT) { assert.NotEmpty(t, j.waits()) }, "no pod waits: the test shows nothing")
		stop()
		_ = cmd.Wait() // it was killed
	})
	t.Run("kubectl reserve drain", func(t *testing.T) {
		b, j, drained := raced(t)
		out, code := b.drain(append(drained, "--parallel=20", "--timeout=8m")...)
		require.Zero(t, code, out)
		b.CatchUp()
		assert.Empty(t, j.waits(), out)
		assert.Empty(t, j.broken, "PodDisruptionBudgets")
		for _, a := range apps() {
			b.awaitPods(a.name, a.replicas)
			for _, node := range drained {
				assert.Zero(t, b.on(node, a.name), a.name)
			}
		}
		assert.Empty(t, b.ListReservations(), "nothing is kept")
		b.RequireNeverOvercommitted()
	})
}

// raced has a cluster whose apps run, and other pods that come for whatever is free once the nodes to be drained are
// cordoned.
func raced(t *testing.T) (b *bench, j *judge, drained []string) {
	t.Helper()
	j = &judge{apps: map[string]int{}}
	b = newBench(t, 20, "16", j.look)
	b.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	_, err := clusterload.StartGangScheduler(t.Context(), b.ControlPlane, clusterload.GangSchedulerOptions{
		SchedulerName: gangScheduler, ServerURL: b.Documented(), Command: []string{testbed.Program(t, "gangscheduler")},
	})
	require.NoError(t, err)
	all := apps()
	for _, a := range all {
		j.apps[a.name] = a.replicas
		b.deploy(a)
	}
	j.begin(b, all)
	var of []string // the gang scheduler has to place some pods, too
	for _, pod := range b.pods("gang-0") {
		of = append(of, pod.Spec.NodeName)
	}
	for _, node := range append(of, b.nodes...) {
		if len(drained) < 4 && !slices.Contains(drained, node) {
			drained = append(drained, node)
		}
	}
	b.flood(drained)
	return b, j, drained
}

// flood has others' pods come as soon as all of some nodes are cordoned: more than fit, and always some that wait.
func (b *bench) flood(nodes []string) {
	b.T.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.T.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		watch, err := b.Client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return
		}
		defer watch.Stop()
		var open []string
		open = append(open, nodes...)
		for event := range watch.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok && node.Spec.Unschedulable {
				open = slices.DeleteFunc(open, func(name string) bool { return name == node.Name })
			}
			if len(open) == 0 {
				break
			}
		}
		for i := 0; i < 150 && ctx.Err() == nil; i++ {
			pod := testbed.NewPod(fmt.Sprintf("other-%d", i), []string{scheduler, "second-scheduler"}[i%2], "1")
			_, _ = b.Client().CoreV1().Pods(b.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		}
	})
	b.T.Cleanup(func() {
		stop()
		running.Wait()
	})
}
