//go:build e2e

package drain

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	scheduler     = "default-scheduler"
	gangScheduler = "gang-scheduler"
)

// shared is the control plane of the tests with workloads, and plain that of those without.
var (
	shared = controlplane.Shared{Options: controlplane.Options{
		Workloads: true, FeatureGates: map[string]bool{"EvictionRequestAPI": true},
		APIServerArgs: []string{"--runtime-config=lifecycle.k8s.io/v1alpha1=true"},
	}, Prepare: crd.Prepare}
	plain = controlplane.Shared{Prepare: crd.Prepare}
)

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared, &plain)) }

// bench is a cluster with a server, one kube-scheduler behind it, and the command, of a user with the role for it.
type bench struct {
	testbed.Cluster
	plugin, kubeconfig string
	nodes              []string
}

// newBench has so many nodes with so many CPUs. look sees every event of a pod.
func newBench(t *testing.T, nodes int, cpus string, look ...clusterload.PodFunc) *bench {
	t.Helper()
	b := &bench{
		Cluster: testbed.NewCluster(t, shared.StartT(t), look...), plugin: testbed.File(t, "bin", "kubectl-reserve"),
	}
	b.StartServer(clusterload.ServerOptions{})
	b.StartKubeScheduler(scheduler, "default-scheduler.yaml")
	require.NoError(t, clusterload.GrantRoles(t.Context(), b.ControlPlane))
	b.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {generateName: test-}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: globalreserve-drainer}
subjects: [{kind: User, name: drainer}]
`)
	var err error
	b.kubeconfig, err = b.Kubeconfig("drainer")
	require.NoError(t, err)
	b.nodes = b.AddNodes(nodes, controlplane.NodeTemplate{
		Labels: testbed.Pairs("pool", "all"),
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("64Gi"),
		},
	})
	b.AwaitUntainted("pool=all")
	return b
}

// drain runs kubectl reserve drain, with more flags, and returns what it printed and its exit code.
func (b *bench) drain(args ...string) (printed string, code int) {
	b.T.Helper()
	return b.run("drain", args...)
}

// run is drain for any command.
func (b *bench) run(name string, args ...string) (printed string, code int) {
	b.T.Helper()
	cmd, out := b.command(name, args...)
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		require.NoError(b.T, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (b *bench) command(name string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	b.T.Helper()
	args = append([]string{name, "--ledger-url=" + b.Documented()}, args...)
	if name == "drain" {
		args = append(args, "--ignore-daemonsets")
	}
	cmd, out = exec.CommandContext(b.T.Context(), b.plugin, args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig, "HOME="+b.T.TempDir())
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// app is one owner of pods, of which one at a time may be away.
type app struct {
	name, kind, scheduler string
	replicas              int
	cpu                   string
}

// deploy creates an app, and waits until its pods run.
func (b *bench) deploy(a app) {
	b.T.Helper()
	a.scheduler = cmp.Or(a.scheduler, scheduler)
	meta, ctx := metav1.ObjectMeta{Name: a.name, Namespace: b.Namespace}, b.T.Context()
	selector, replicas := &metav1.LabelSelector{MatchLabels: testbed.Pairs("app", a.name)}, ptr.To(int32(a.replicas))
	var err error
	switch a.kind {
	case "Deployment":
		_, err = b.Client().AppsV1().Deployments(b.Namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: replicas, Selector: selector, Template: a.template()},
		}, metav1.CreateOptions{})
	case "StatefulSet":
		_, err = b.Client().AppsV1().StatefulSets(b.Namespace).Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				Replicas: replicas, Selector: selector, Template: a.template(), PodManagementPolicy: appsv1.ParallelPodManagement,
			},
		}, metav1.CreateOptions{})
	case "Job":
		_, err = b.Client().BatchV1().Jobs(b.Namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: replicas, Completions: replicas, Template: a.template()},
		}, metav1.CreateOptions{})
	}
	require.NoError(b.T, err)
	b.budget(a.name, a.replicas-1)
	b.awaitPods(a.name, a.replicas)
}

// budget says how many pods of an app have to be available.
func (b *bench) budget(app string, available int) {
	b.T.Helper()
	pdbs, pdb := b.Client().PolicyV1().PodDisruptionBudgets(b.Namespace), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:     &metav1.LabelSelector{MatchLabels: testbed.Pairs("app", app)},
			MinAvailable: ptr.To(intstr.FromInt(available)),
		},
	}
	err := pdbs.Delete(b.T.Context(), app, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(b.T, err)
	}
	_, err = pdbs.Create(b.T.Context(), pdb, metav1.CreateOptions{})
	require.NoError(b.T, err)
}

// template is that of the app's pods. Those of the gang scheduler are a gang.
func (a app) template() corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: testbed.Pairs("app", a.name, "keeps-running", "true")},
		Spec: corev1.PodSpec{
			SchedulerName: a.scheduler, TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(a.cpu)},
			}}},
		},
	}
	if a.kind == "Job" {
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if a.scheduler == gangScheduler {
		t.Annotations = testbed.Pairs(v1alpha1.GangAnnotation, a.name, v1alpha1.GangMinAnnotation, strconv.Itoa(a.replicas))
	}
	return t
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
