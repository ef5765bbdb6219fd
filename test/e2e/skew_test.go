//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// skewModules pin the kube-schedulers of older releases; `make skew-schedulers` builds them.
var skewModules = []string{"oldscheduler", "coscheduler"}

var kubernetesPin = regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`)

// pinnedKubernetes is the release of Kubernetes that a module below test/ pins.
func pinnedKubernetes(t *testing.T, module string) string {
	t.Helper()
	content, err := controlplane.ReadFile("test", module, "go.mod")
	require.NoError(t, err)
	pin := kubernetesPin.FindSubmatch(content)
	require.NotNil(t, pin, module)
	return string(pin[1])
}

// TestOlderKubeSchedulers has unmodified kube-schedulers of older releases behind the server, with the files of
// scheduler-config/, against the API server of today.
func TestOlderKubeSchedulers(t *testing.T) {
	for _, module := range skewModules {
		version := pinnedKubernetes(t, module)
		t.Run(version, func(t *testing.T) {
			for name, test := range map[string]func(c *cluster){
				"race":            (*cluster).requireRaceOfOlder,
				"wake-up":         (*cluster).requireRefusedAndWoken,
				"preemption":      (*cluster).requirePreemption,
				"nominated nodes": (*cluster).requireNominated,
				"newer requests":  (*cluster).requireNewerRequestsCounted,
			} {
				t.Run(name, func(t *testing.T) {
					c := newCluster(t, 0)
					c.KubeScheduler = controlplane.SchedulerOptions{
						Path: testbed.File(t, "bin", "skew", "kube-scheduler-"+version), Probe: "/healthz",
					}
					test(c)
					c.RequireNeverOvercommitted()
					require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
					c.requireAgreement()
				})
			}
		})
	}
}

// requireRaceOfOlder is TestRace.
func (c *cluster) requireRaceOfOlder() {
	c.T.Helper()
	c.addServed(raceNodes)
	c.requireRace()
}

// requireRefusedAndWoken has a pod refused for what the ledger alone knows of. The scheduler shows the pod's owner the
// server's text, and binds the pod when the server wakes it.
func (c *cluster) requireRefusedAndWoken() {
	c.T.Helper()
	c.addServed(1)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	promised := gangOf([]*corev1.Pod{testbed.NewPod("promised", nobody, "4")}, "node-0")
	promised.TTLSeconds = 600
	require.True(c.T, c.Reserve(promised).Granted())
	c.CreatePod("waiting", "default-scheduler", "1")
	require.Contains(c.T, c.AwaitRefused("waiting"),
		"0/1 nodes are available: 1 GlobalReserve: not enough capacity left on the node")
	c.AwaitBackOffOver()
	require.True(c.T, c.Unreserve(promised).Granted())
	c.AwaitBound("waiting")
	require.NotZero(c.T, c.Metric("globalreserve_wakeups_total"))
}

// sampledNodes is more than three samples of kube-scheduler: 100 nodes each.
const sampledNodes = 350

// requireNominated leaves capacity on one node alone, which is not in the first samples.
func (c *cluster) requireNominated() {
	c.T.Helper()
	names := c.addServed(sampledNodes)
	slices.Sort(names)
	free := names[len(names)-1]
	promised := gangOf(testbed.NewPods(len(names)-1, "promised", nobody, "4"), names[:len(names)-1]...)
	promised.TTLSeconds = 600
	require.True(c.T, c.Reserve(promised).Granted())
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")

	ctx, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	pods, err := c.Client().CoreV1().Pods(c.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=sent"})
	require.NoError(c.T, err)
	defer pods.Stop()
	c.CreatePod("sent", "default-scheduler", "4")
	nominated, bound := "", ""
	for event := range pods.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		require.True(c.T, ok, "%v", event.Object)
		if bound = pod.Spec.NodeName; bound != "" {
			break
		}
		nominated = cmp.Or(nominated, pod.Status.NominatedNodeName)
	}
	require.Equal(c.T, free, nominated, "the server sent the pod to the node")
	require.Equal(c.T, free, bound, "the scheduler tried the pod again soon")
	require.True(c.T, c.Unreserve(promised).Granted())
}

// requireNewerRequestsCounted creates pods that say what they request where schedulers as old do not look for it. Each
// takes most of the node. The scheduler finds that they fit together, and the server counts what the API server has.
func (c *cluster) requireNewerRequestsCounted() {
	c.T.Helper()
	c.addServed(1)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.Create(testbed.NewPods(3, "newer", "default-scheduler", "100m", func(pod *corev1.Pod) {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: testbed.Requests("3")}
	})...)
	snapshot := c.awaitSettled()
	require.Equal(c.T, []int{1, 2}, []int{snapshot.Bound, snapshot.Pending})
	for _, pod := range c.Pods() {
		if pod.Spec.NodeName == "" {
			c.Eventually(func(t *assert.CollectT) {
				assert.Contains(t, c.AwaitRefused(pod.Name), "1 GlobalReserve: not enough capacity left on the node")
			})
		}
	}
}
