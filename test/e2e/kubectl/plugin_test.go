package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

const (
	namespace = "default"
	poll      = 50 * time.Millisecond
	soon      = 30 * time.Second
)

// bench is a control plane with a server and the plugin.
type bench struct {
	*controlplane.ControlPlane
	t          *testing.T
	plugin     string
	kubeconfig string
	nodes      []string
	server     *clusterload.Server
}

// newBench starts a control plane with two nodes of 4 CPUs, the definition of Reservation and a server.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := benchOn(t, controlplane.StartT(t, controlplane.Options{}))
	require.NoError(t, crd.Prepare(t.Context(), b.ControlPlane))
	b.startServer()
	return b
}

// newBareBench has neither the definition nor a server.
func newBareBench(t *testing.T) *bench {
	t.Helper()
	return benchOn(t, shared.StartT(t))
}

func benchOn(t *testing.T, cp *controlplane.ControlPlane) *bench {
	t.Helper()
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	plugin := filepath.Join(root, "bin", "kubectl-reserve")
	_, err = os.Stat(plugin)
	require.NoError(t, err, "build it with 'make build'")
	b := &bench{ControlPlane: cp, t: t, plugin: plugin}
	b.kubeconfig, err = b.AdminKubeconfig()
	require.NoError(t, err)
	b.nodes, err = b.CreateNodes(t.Context(), 2, controlplane.NodeTemplate{})
	require.NoError(t, err)
	return b
}

func (b *bench) startServer() {
	b.t.Helper()
	server, err := clusterload.StartServer(b.t.Context(), b.ControlPlane, clusterload.ServerOptions{Args: clusterload.QuickStart})
	require.NoError(b.t, err)
	b.server = server
}

// in returns the same bench for a subtest.
func (b *bench) in(t *testing.T) *bench {
	inner := *b
	inner.t = t
	return &inner
}

// result is what the plugin printed and how it ended.
type result struct {
	out, err string
	code     int
}

func (b *bench) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig, "HOME="+b.t.TempDir())
	return cmd
}

// run runs the plugin as a user does, without --server.
func (b *bench) run(args ...string) result {
	b.t.Helper()
	var out, errOut bytes.Buffer
	cmd := b.command(b.t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(b.t, err)
	}
	return result{out: out.String(), err: errOut.String(), code: cmd.ProcessState.ExitCode()}
}

// ask is run with --server.
func (b *bench) ask(args ...string) result {
	b.t.Helper()
	return b.run(append(args, "--server="+b.server.URL)...)
}

// must is run or ask of a command that has to succeed and to say nothing but its output.
func (b *bench) must(got result) string {
	b.t.Helper()
	require.Equal(b.t, 0, got.code, "%s%s", got.out, got.err)
	require.Empty(b.t, got.err)
	return got.out
}

// eventually polls until the condition holds.
func (b *bench) eventually(condition func(t *assert.CollectT)) {
	b.t.Helper()
	require.EventuallyWithT(b.t, condition, soon, poll)
}

func (b *bench) createPod(name, scheduler, cpu string) {
	b.t.Helper()
	_, err := b.Client().CoreV1().Pods(namespace).Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{
			Name: "main", Image: "example.invalid/not-pulled", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(b.t, err)
}

func (b *bench) getPod(t require.TestingT, name string) *corev1.Pod {
	pod, err := b.Client().CoreV1().Pods(namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod
}
