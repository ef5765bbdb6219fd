//go:build e2e

package check

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/globalreserve/globalreserve/pkg/check"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/test/authority"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared has our definitions and policies.
var shared = controlplane.Shared{Options: controlplane.Options{}, Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// bench is a cluster of two nodes with 4 CPUs each.
type bench struct {
	testbed.Cluster
	nodes []string
	// kubeconfig is that of who checks.
	kubeconfig string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return benchOn(t, shared.StartT(t))
}

func benchOn(t *testing.T, cp *controlplane.ControlPlane) *bench {
	t.Helper()
	b := &bench{Cluster: testbed.NewCluster(t, cp)}
	b.nodes = b.AddNodes(2, controlplane.NodeTemplate{})
	var err error
	b.kubeconfig, err = b.AdminKubeconfig()
	require.NoError(t, err)
	return b
}

// report is what the command prints with -o json.
type report struct {
	State check.State
	Lines []check.Line
	// code is the exit code, and text what was printed.
	code int
	text string
}

// check runs the command as a user does, who presses Ctrl-C where ctx ends.
func (b *bench) check(ctx context.Context, args ...string) (r report) {
	b.T.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, testbed.File(b.T, "bin", "kubectl-reserve"), append([]string{
		"check", "-o", "json", "--kubeconfig", b.kubeconfig, "--ledger-url", b.Server.URL,
	}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		require.NoError(b.T, err)
	}
	r.code, r.text = cmd.ProcessState.ExitCode(), out.String()+errOut.String()
	_ = json.Unmarshal(out.Bytes(), &r) // whoever looks at lines finds none
	return r
}

// of are the lines with a name that are not ok.
func (r *report) of(name string) (lines []string) {
	for _, l := range r.Lines {
		if l.Name == name && l.State != check.OK {
			lines = append(lines, string(l.State)+": "+l.Says)
		}
	}
	return lines
}

// awaitLine checks until a line with a name has the state and the text, and something to do.
func (b *bench) awaitLine(name string, state check.State, text string, args ...string) {
	b.T.Helper()
	b.Eventually(func(c *assert.CollectT) {
		r := b.check(b.T.Context(), args...)
		found := false
		for _, l := range r.Lines {
			found = found || l.Name == name && l.State == state && strings.Contains(l.Says, text) && l.Do != ""
		}
		require.True(c, found, "%s %s %q: %s", name, state, text, r.text)
		require.Equal(c, r.State == check.Fails, r.code == 1, r.text)
	})
}

// requireHealthy requires that nothing is even worth a warning.
func (b *bench) requireHealthy(args ...string) {
	b.T.Helper()
	b.Eventually(func(c *assert.CollectT) {
		r := b.check(b.T.Context(), args...)
		require.Equal(c, check.OK, r.State, r.text)
		require.Zero(c, r.code, r.text)
	})
}

// TestHealthy: a cluster as it should be has no warning, with pods of schedulers that ask. The report names no pod.
func TestHealthy(t *testing.T) {
	b := newBench(t)
	b.StartAsked(clusterload.ServerOptions{})
	b.StartKubeScheduler("kube-scheduler", "default-scheduler.yaml")
	b.CreatePod("secret-name", "default-scheduler", "1")
	b.AwaitBound("secret-name")
	b.CreatePod("by-admission", "other-scheduler", "1")
	require.NoError(t, b.BindDirectly("by-admission", b.nodes[0]))
	b.requireHealthy("--wait", "--race")

	began := time.Now()
	r := b.check(t.Context())
	t.Logf("a check took %s", time.Since(began))
	for _, name := range []string{
		"definitions", "rights", "leader", "fence", "servers", "watches", "clocks", "versions", "policy", "ledger",
		"webhooks", "schedulers",
	} {
		assert.Contains(t, r.text, `"name": "`+name+`"`)
	}
	assert.Contains(t, r.text, "default-scheduler has bound 1 pod, and asks")
	assert.Contains(t, r.text, "other-scheduler has bound 1 pod, and asks")
	assert.NotContains(t, r.text, "secret-name")
}

// TestBroken breaks one thing after another.
func TestBroken(t *testing.T) {
	b := benchOn(t, controlplane.StartT(t, controlplane.Options{})) // its definitions are changed
	require.NoError(t, crd.Prepare(t.Context(), b.ControlPlane))
	policy := testbed.Policy(t, "")
	b.StartServer(clusterload.ServerOptions{Args: []string{"--policy-file=" + policy}})
	b.requireHealthy()
	for _, tt := range []struct {
		what, name string
		state      check.State
		says       string
		damage     func(t *testing.T)
	}{
		{"no fence", "fence", check.Fails, "is not refused", func(t *testing.T) {
			bindings := b.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
			require.NoError(t, bindings.Delete(t.Context(), election.FenceName, metav1.DeleteOptions{}))
		}},
		{
			"an old definition", "definitions", check.Warning, "reservations.globalreserve.io is of another version",
			func(t *testing.T) {
				b.changeDefinition(t, "Reservation", func(definition *unstructured.Unstructured) {
					versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
					require.NoError(t, err)
					unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec",
						"properties", "preemptible")
					require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
				})
			},
		},
		{
			"a missing definition", "definitions", check.Fails, "extendedresources.globalreserve.io is not installed",
			func(t *testing.T) { b.changeDefinition(t, "ExtendedResource", nil) },
		},
		{"a scheduler that does not ask", "schedulers", check.Fails, "rogue has bound 1 pod since", func(t *testing.T) {
			b.CreatePod("one", "rogue", "1")
			require.NoError(t, b.BindDirectly("one", b.nodes[0]))
		}},
		{"an overcommitted node", "ledger", check.Fails, "1 node is overcommitted", func(t *testing.T) {
			b.CreatePod("two", "rogue", "4")
			require.NoError(t, b.BindDirectly("two", b.nodes[0]))
		}},
		{"a bad policy", "policy", check.Warning, "1 reload of the file failed", func(t *testing.T) {
			testbed.ChangePolicy(t, policy, "nonsense: true")
		}},
		{"no server", "servers", check.Fails, "no answer", func(t *testing.T) { b.Server.KillAlone(t) }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			inner := *b
			inner.T = t
			healthy := b.check(t.Context())
			require.NotContains(t, strings.Join(healthy.of(tt.name), "\n"), tt.says)
			tt.damage(t)
			inner.awaitLine(tt.name, tt.state, tt.says)
		})
	}
	b.awaitLine("leader", check.Fails, "no server that was asked decides; term ")
	assert.Equal(t, 3, b.check(t.Context(), "--server=https://127.0.0.1:1").code, "the API server does not answer")
}

// changeDefinition changes the definition of a kind, or removes it.
func (b *bench) changeDefinition(t *testing.T, kind string, change func(*unstructured.Unstructured)) {
	t.Helper()
	all, err := crd.Definitions()
	require.NoError(t, err)
	for _, own := range all {
		if name, _, _ := unstructured.NestedString(own.Object, "spec", "names", "kind"); name != kind {
			continue
		}
		resource, err := b.Resource(own, "")
		require.NoError(t, err)
		if change == nil {
			require.NoError(t, resource.Delete(t.Context(), own.GetName(), metav1.DeleteOptions{}))
			return
		}
		there, err := resource.Get(t.Context(), own.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		change(there)
		_, err = resource.Update(t.Context(), there, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

// TestWebhooks breaks the admission webhooks.
func TestWebhooks(t *testing.T) {
	b := newBench(t)
	webhook := b.StartAsked(clusterload.ServerOptions{})
	b.requireHealthy()
	ended, _ := authority.Pair(authority.New().Issue("ended", -time.Hour, x509.ExtKeyUsageServerAuth))
	for _, tt := range []struct {
		what   string
		state  check.State
		says   string
		change func(*admissionregistrationv1.MutatingWebhook)
	}{
		{
			"left out", check.Warning, "leaves out namespaces that have pods on nodes: left-out",
			func(w *admissionregistrationv1.MutatingWebhook) {
				values := &w.NamespaceSelector.MatchExpressions[0].Values
				*values = append(*values, "left-out")
			},
		},
		{
			"missing", check.Fails, "some are installed, and missing are resizes.globalreserve.io",
			func(w *admissionregistrationv1.MutatingWebhook) {
				if strings.HasPrefix(w.Name, "resizes") {
					w.Name = "resizes.example.com"
				}
			},
		},
		{"by labels", check.Warning, "asked about some objects alone", func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
		{"ignore", check.Warning, "failurePolicy Ignore", func(w *admissionregistrationv1.MutatingWebhook) {
			ignore := admissionregistrationv1.Ignore
			w.FailurePolicy = &ignore
		}},
		{
			"ended", check.Fails, "the authority in caBundle ends on ",
			func(w *admissionregistrationv1.MutatingWebhook) {
				w.ClientConfig.CABundle = ended
			},
		},
		{
			"unreached", check.Fails, "the API server does not reach bindings.globalreserve.io",
			func(w *admissionregistrationv1.MutatingWebhook) {
				url := strings.Replace(*w.ClientConfig.URL, "127.0.0.1", "127.0.0.2", 1)
				w.ClientConfig.URL = &url
			},
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			inner := b.Cluster
			if tt.what == "left out" {
				inner = b.In(t, "left-out")
				inner.CreatePod("there", "default-scheduler", "1")
				require.NoError(t, inner.BindDirectly("there", b.nodes[0]))
			}
			hooks := b.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
			configuration, err := webhook.Configuration()
			require.NoError(t, err)
			before, err := hooks.Get(t.Context(), configuration.Name, metav1.GetOptions{})
			require.NoError(t, err)
			broken := before.DeepCopy()
			for i := range broken.Webhooks {
				tt.change(&broken.Webhooks[i])
			}
			broken, err = hooks.Update(t.Context(), broken, metav1.UpdateOptions{})
			require.NoError(t, err)
			(&bench{Cluster: inner, kubeconfig: b.kubeconfig}).awaitLine("webhooks", tt.state, tt.says)
			before.ResourceVersion = broken.ResourceVersion
			_, err = hooks.Update(t.Context(), before, metav1.UpdateOptions{})
			require.NoError(t, err)
		})
	}
}

// TestCertificate: the certificate of the server ends soon, or has ended.
func TestCertificate(t *testing.T) {
	b := newBench(t)
	issuer, folder := authority.New(), t.TempDir()
	write := func(name string, content []byte) (file string) {
		file = filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, content, 0o600))
		return file
	}
	ca := write("ca.crt", issuer.PEM())
	for what, tt := range map[string]struct {
		ends       time.Duration
		state      check.State
		name, says string
	}{
		"soon":  {24 * time.Hour, check.Warning, "certificate", "ends on"},
		"ended": {-time.Hour, check.Fails, "certificate", "has ended"},
	} {
		t.Run(what, func(t *testing.T) {
			certificate, key := authority.Pair(issuer.Issue("localhost", tt.ends, x509.ExtKeyUsageServerAuth))
			port, err := b.FreePort()
			require.NoError(t, err)
			b.StartServer(clusterload.ServerOptions{Name: what, StandBy: true, Args: []string{
				"--tls-cert-file=" + write(what+".crt", certificate), "--tls-private-key-file=" + write(what+".key", key),
				"--secure-bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
			}})
			b.Server.URL = "https://127.0.0.1:" + strconv.Itoa(port)
			b.awaitLine(tt.name, tt.state, tt.says, "--ledger-certificate-authority", ca)
		})
	}
}

// TestRights: who checks has no rights, or the server lacks some.
func TestRights(t *testing.T) {
	b := newBench(t)
	_, err := clusterload.ServerKubeconfig(t.Context(), b.ControlPlane)
	require.NoError(t, err)
	roles := b.Client().RbacV1().ClusterRoles()
	all, err := roles.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range all.Items {
		role := &all.Items[i]
		if !strings.HasPrefix(role.Name, "globalreserve") {
			continue
		}
		for j := range role.Rules {
			role.Rules[j].Resources = without(role.Rules[j].Resources, "resourceslices")
		}
		_, err := roles.Update(t.Context(), role, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	b.StartServer(clusterload.ServerOptions{})
	b.awaitLine("servers", check.Warning, "resourceslices")

	b.kubeconfig, err = b.Kubeconfig("nobody")
	require.NoError(t, err)
	b.awaitLine("rights", check.Warning, "you may not get customresourcedefinitions")
	b.awaitLine("schedulers", check.Warning, "could not be looked at")
}

func without(all []string, one string) (rest []string) {
	for _, s := range all {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}

// TestStaleWatch: the server hears nothing from the API server. It takes as long as a watch may be silent.
func TestStaleWatch(t *testing.T) {
	b := newBench(t)
	proxy, err := b.StartFaultProxy()
	require.NoError(t, err)
	b.StartServer(clusterload.ServerOptions{Proxy: proxy})
	b.requireHealthy()
	require.NoError(t, proxy.Stop())
	b.awaitLine("watches", check.Fails, "nothing was heard of deployments for")
}

// TestRace tries a reservation, a conflict and a release, and leaves nothing behind, also where it is interrupted.
func TestRace(t *testing.T) {
	b := newBench(t)
	b.StartServer(clusterload.ServerOptions{})
	r := b.check(t.Context(), "--race")
	require.Equal(t, check.OK, r.State, r.text)
	assert.Contains(t, r.text, "of two for one host port one got it")
	b.requireNothingLeft()

	// A cluster that is full is none that fails.
	for i, node := range b.nodes {
		require.Empty(t, b.Bind(b.CreatePod("full-"+strconv.Itoa(i), testbed.Nobody, "4"), node))
	}
	r = b.check(t.Context(), "--race")
	require.Equal(t, []string{"warning: could not be tried"}, shortened(r.of("race")), r.text)
	b.requireNothingLeft()
	b.Clear()
	b.CatchUp()

	ctx, interrupt := context.WithCancel(t.Context())
	watch, err := b.Objects.GlobalreserveV1alpha1().Reservations("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	go func() {
		<-watch.ResultChan()
		interrupt()
	}()
	r = b.check(ctx, "--race")
	assert.Equal(t, 1, r.code, r.text)
	assert.Contains(t, r.text, "interrupted")
	b.requireNothingLeft()
}

// shortened are lines up to their first comma.
func shortened(lines []string) (short []string) {
	for _, line := range lines {
		line, _, _ = strings.Cut(line, ",")
		short = append(short, line)
	}
	return short
}

func (b *bench) requireNothingLeft() {
	b.T.Helper()
	b.Eventually(func(c *assert.CollectT) {
		namespaces, err := b.Client().CoreV1().Namespaces().List(b.T.Context(), metav1.ListOptions{
			LabelSelector: "globalreserve.io/check",
		})
		require.NoError(c, err)
		for i := range namespaces.Items { // the last step is kube-controller-manager's
			require.NotNil(c, namespaces.Items[i].DeletionTimestamp, namespaces.Items[i].Name)
		}
		require.Empty(c, b.ListReservations())
	})
}
