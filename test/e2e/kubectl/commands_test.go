//go:build e2e

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCommands goes the way of somebody who keeps capacity, sees a pod wait for it, finds out why and gives
// the capacity back.
func TestCommands(t *testing.T) {
	b := newBench(t)
	b.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")

	for _, step := range []struct {
		name string
		run  func(*bench)
	}{
		{"version", (*bench).checkVersion},
		{"create", (*bench).checkCreate},
		{"create what does not fit", (*bench).checkTooLarge},
		{"pods", (*bench).checkPods},
		{"explain", (*bench).checkExplain},
		{"completion", (*bench).checkCompletion},
		{"delete", (*bench).checkDelete},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(b.in(t)) }) {
			return // each step stands on those before
		}
	}
}

func (b *bench) checkVersion() {
	out := b.must(b.ask("version"))
	assert.Contains(b.T, out, "Client: globalreserve ")
	assert.Contains(b.T, out, "Server: globalreserve ")
}

// checkCreate keeps 3 of 4 CPUs on both nodes.
func (b *bench) checkCreate() {
	out := b.must(b.run("create", "capacity", "--cpu", "3", "--memory", "1Gi", "--replicas", "2", "--index", "later",
		"--ttl", "1h", "--wait"))
	assert.Contains(b.T, out, "reservation.globalreserve.io/capacity available on "+b.nodes[0]+" +1\n")
	out = b.must(b.ask("nodes"))
	for _, node := range b.nodes {
		assert.Equal(b.T, []string{node, "OK", "cpu", "4", "0", "3", "1", "75%"},
			strings.Fields(line(b.T, out, node)))
	}
	out = b.must(b.run("create", "other", "--cpu", "1", "--dry-run=server", "-o", "yaml"))
	assert.Contains(b.T, out, "uid: ", "the API server has seen it")
	// What the plugin leaves to the schema to refuse.
	for flags, says := range map[string]string{
		"--scheduler=" + strings.Repeat("n", 254): "spec.schedulerName", "--cpu=-1": "an amount must not be negative",
		"--resource=pods=2": "leave out pods", "--node=n --node-selector=a=b": "nodeSelector is for a node",
		"--ttl=-1m": "spec.ttl", "--ttl=100000h": "at most 87600h", "--index=i --gang=a": "at most one of index",
		"--controller=rollout/web": "spec.consumers.controller.kind", "--controller=Deployment/": "controller.name",
		"--gang=volcano/ns/a": "spec.consumers.gang.name", "--gang=volcano/": "spec.consumers.gang.name",
		"--gang=PodGroup/a": "spec.consumers.gang.kind",
	} {
		got := b.run(append([]string{"create", "other", "--cpu", "1"}, strings.Fields(flags)...)...)
		assert.Equal(b.T, 1, got.code, flags)
		assert.Contains(b.T, got.err, says, flags)
	}
	got := b.run("create", "Other", "--cpu", "1")
	assert.Contains(b.T, got.err, "metadata.name")
}

func (b *bench) checkTooLarge() {
	got := b.run("create", "large", "--cpu", "100", "--wait=10s")
	assert.Equal(b.T, 4, got.code)
	assert.Contains(b.T, got.err, `reservation "large" is not available yet: Pending: `)
	assert.Contains(b.T, got.err, "cpu", "it says what is missing")
	require.NoError(b.T, b.Reservations().Delete(b.T.Context(), "large", metav1.DeleteOptions{}))
}

func (b *bench) checkPods() {
	b.CreatePod("small", "default-scheduler", "500m")
	pod, _ := b.AwaitBound("small")
	b.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, []string{"default-scheduler", "small", "Bound", pod.Spec.NodeName, "0.5", "64Mi", "<none>"},
			strings.Fields(line(t, b.ask("pods").out, "default-scheduler")))
	})
	assert.Contains(b.T, b.must(b.ask("explain", "small")), "State:      Bound")
}

// checkExplain has a pod wait for capacity that a reservation holds.
func (b *bench) checkExplain() {
	b.CreatePod("waiting", "default-scheduler", "2")
	b.AwaitRefused("waiting")
	out := b.must(b.ask("explain", "waiting"))
	for _, part := range []string{
		"State:        Pending", "Requests:     cpu 2, memory 64Mi",
		"Capacity on:  0 of 2 nodes", "reservation/default/capacity/capacity-",
	} {
		assert.Contains(b.T, out, part)
	}
	assert.Equal(b.T, []string{"2", "InsufficientResource", "cpu", b.nodes[0] + ",", b.nodes[1]},
		strings.Fields(line(b.T, out, "  2 ")))
}

func (b *bench) checkCompletion() {
	assert.Contains(b.T, b.run("__complete", "nodes", "").out, b.nodes[0]+"\n")
	out := b.run("__complete", "explain", "").out
	assert.Contains(b.T, out, "waiting\n")
	assert.NotContains(b.T, out, "small\n", "it has a node")
}

// checkDelete gives the capacity back, which the waiting pod then gets.
func (b *bench) checkDelete() {
	require.NoError(b.T, b.Reservations().Delete(b.T.Context(), "capacity", metav1.DeleteOptions{}))
	b.AwaitBound("waiting")
}

// line returns the first line of a text that starts with prefix.
func line(t require.TestingT, text, prefix string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			return l
		}
	}
	require.Fail(t, "there is no such line", "%q in\n%s", prefix, text)
	return ""
}

// TestErrors shows what people are told where something around the plugin is missing.
func TestErrors(t *testing.T) {
	b := benchOn(t, shared.StartT(t))
	nobody, err := b.Kubeconfig("jane")
	require.NoError(t, err)
	stranger := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(stranger, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`), 0o600))
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no definition, create": {
			[]string{"create", "a", "--cpu", "1"}, 1, "install their definition with kubectl apply -k manifests/crd",
		},
		"no rights":          {[]string{"devices", "--kubeconfig", nobody}, 1, "you may not do that"},
		"no rights, service": {[]string{"nodes", "--kubeconfig", nobody}, 1, "you may not do that"},
		"no cluster":         {[]string{"devices", "--kubeconfig", stranger}, 3, "the Kubernetes API does not answer"},
		"no such context": {
			[]string{"devices", "--context", "nope"},
			2,
			`context "nope" does not exist`,
		},
		"no such kubeconfig": {[]string{"devices", "--kubeconfig", "/does/not/exist"}, 2, "the kubeconfig cannot be used"},
		"no server": {
			[]string{"nodes", "--ledger-url", "http://127.0.0.1:1"},
			3,
			"the GlobalReserve server does not answer at http://127.0.0.1:1",
		},
		"another server": {[]string{"nodes", "--ledger-url", b.URL()}, 3, "give --ledger-certificate-authority FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.in(t).run(tt.args...)
			assert.Equal(t, tt.code, got.code, got.err)
			assert.Contains(t, got.err, tt.says)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line: %s", got.err)
			assert.Empty(t, got.out)
		})
	}
}
