//go:build e2e

package drain

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const scheduler = "default-scheduler"

var shared = controlplane.Shared{Options: controlplane.Options{Workloads: true}, Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// bench is a cluster with a server, one kube-scheduler behind it, and the command.
type bench struct {
	testbed.Cluster
	plugin, kubeconfig string
	nodes              []string
}

// newBench has so many nodes of 4 CPUs.
func newBench(t *testing.T, nodes int) *bench {
	t.Helper()
	b := &bench{Cluster: testbed.NewCluster(t, shared.StartT(t)), plugin: testbed.File(t, "bin", "kubectl-reserve")}
	b.StartServer(clusterload.ServerOptions{})
	b.StartKubeScheduler(scheduler, "default-scheduler.yaml")
	var err error
	b.kubeconfig, err = b.AdminKubeconfig()
	require.NoError(t, err)
	b.nodes = b.AddNodes(nodes, controlplane.NodeTemplate{Labels: testbed.Pairs("pool", "all")})
	b.AwaitUntainted("pool=all")
	return b
}

// drain runs the command, with more flags, and returns what it printed and its exit code.
func (b *bench) drain(args ...string) (printed string, code int) {
	b.T.Helper()
	var out bytes.Buffer
	args = append([]string{"drain", "--ignore-daemonsets", "--ledger-url=" + b.Documented()}, args...)
	cmd := exec.CommandContext(b.T.Context(), b.plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig, "HOME="+b.T.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		require.NoError(b.T, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// template is that of pods of an app that ask for so many CPUs.
func template(app, cpu string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: testbed.Pairs("app", app)},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
	}
}

// deploy creates a Deployment, of which one pod at a time may be away, and waits until its pods are bound.
func (b *bench) deploy(app string, replicas int, cpu string) {
	b.T.Helper()
	b.create(app, func(meta metav1.ObjectMeta, selector *metav1.LabelSelector) error {
		_, err := b.Client().AppsV1().Deployments(b.Namespace).Create(b.T.Context(), &appsv1.Deployment{
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(replicas)), Selector: selector, Template: template(app, cpu),
			},
		}, metav1.CreateOptions{})
		return err
	})
	b.awaitPods(app, replicas)
}

// deployStateful is deploy for a StatefulSet.
func (b *bench) deployStateful(app string, replicas int, cpu string) {
	b.T.Helper()
	b.create(app, func(meta metav1.ObjectMeta, selector *metav1.LabelSelector) error {
		_, err := b.Client().AppsV1().StatefulSets(b.Namespace).Create(b.T.Context(), &appsv1.StatefulSet{
			ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To(int32(replicas)), Selector: selector, Template: template(app, cpu),
				PodManagementPolicy: appsv1.ParallelPodManagement,
			},
		}, metav1.CreateOptions{})
		return err
	})
	b.awaitPods(app, replicas)
}

func (b *bench) create(app string, create func(metav1.ObjectMeta, *metav1.LabelSelector) error) {
	b.T.Helper()
	meta := metav1.ObjectMeta{Name: app, Namespace: b.Namespace}
	selector := &metav1.LabelSelector{MatchLabels: testbed.Pairs("app", app)}
	require.NoError(b.T, create(meta, selector))
	_, err := b.Client().PolicyV1().PodDisruptionBudgets(b.Namespace).Create(b.T.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	}, metav1.CreateOptions{})
	require.NoError(b.T, err)
}

// awaitPods waits until an app has so many pods, all of them ready, and returns them by name.
func (b *bench) awaitPods(app string, n int) (pods map[string]corev1.Pod) {
	b.T.Helper()
	b.Eventually(func(t *assert.CollectT) {
		pods = b.pods(app)
		ready := 0
		for _, pod := range pods {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				ready++
			}
		}
		assert.Equal(t, n, ready, "of %s", app)
	})
	return pods
}

func (b *bench) pods(app string) map[string]corev1.Pod {
	b.T.Helper()
	list, err := b.Client().CoreV1().Pods(b.Namespace).List(b.T.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(b.T, err)
	pods := map[string]corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = list.Items[i]
	}
	return pods
}

// on counts the pods of apps on a node.
func (b *bench) on(node string, apps ...string) (n int) {
	b.T.Helper()
	for _, app := range apps {
		for _, pod := range b.pods(app) {
			if pod.Spec.NodeName == node {
				n++
			}
		}
	}
	return n
}

func (b *bench) cordoned(node string) bool {
	b.T.Helper()
	got, err := b.Client().CoreV1().Nodes().Get(b.T.Context(), node, metav1.GetOptions{})
	require.NoError(b.T, err)
	return got.Spec.Unschedulable
}
