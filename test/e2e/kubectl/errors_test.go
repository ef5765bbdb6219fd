//go:build e2e

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestErrors shows what people are told where something around the plugin is missing.
func TestErrors(t *testing.T) {
	b := newBareBench(t)
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
		"no definition, list":     {[]string{"list"}, 1, "install their definition with kubectl apply -k manifests/crd"},
		"no definition, create":   {[]string{"create", "a", "--cpu", "1"}, 1, "does not know Reservation objects"},
		"no definition, describe": {[]string{"describe", "a"}, 1, "does not know Reservation objects"},
		"no definition, delete":   {[]string{"delete", "a", "--ignore-not-found"}, 1, "does not know Reservation objects"},
		"no rights":               {[]string{"list", "--kubeconfig", nobody}, 1, "you may not do that"},
		"no rights, service":      {[]string{"nodes", "--kubeconfig", nobody}, 1, "you may not do that"},
		"no cluster":              {[]string{"list", "--kubeconfig", stranger}, 3, "the Kubernetes API does not answer"},
		"no such context":         {[]string{"list", "--context", "nope"}, 2, "context was not found for specified context: nope"},
		"no such kubeconfig":      {[]string{"list", "--kubeconfig", "/does/not/exist"}, 2, "the kubeconfig cannot be used"},
		"no server":               {[]string{"nodes", "--ledger-url", "http://127.0.0.1:1"}, 3, "the GlobalReserve server does not answer at http://127.0.0.1:1"},
		"another server":          {[]string{"nodes", "--ledger-url", b.URL()}, 3, "give --ledger-certificate-authority FILE"},
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

// TestService reaches for the server through its Service, as far as that goes without a kubelet.
func TestService(t *testing.T) {
	b := newBareBench(t)
	const system = "globalreserve-system"
	require.NoError(t, b.CreateNamespace(t.Context(), system))
	expect := func(says string) {
		t.Helper()
		got := b.run("nodes")
		assert.Equal(t, 3, got.code)
		assert.Contains(t, got.err, says)
		assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line: %s", got.err)
	}
	expect("there is no Service globalreserve-system/globalreserve")

	labels := map[string]string{"app.kubernetes.io/name": "globalreserve"}
	_, err := b.Client().CoreV1().Services(system).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "globalreserve"},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "http", Port: 23456, TargetPort: intstr.FromString("http")},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	expect("has no pods")

	pod, err := b.Client().CoreV1().Pods(system).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "globalreserve-0", Labels: labels},
		Spec: corev1.PodSpec{NodeName: b.nodes[0], Containers: []corev1.Container{{
			Name: "globalreserve", Image: "example.invalid/not-pulled", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 23456}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	expect("globalreserve-0 is pending")

	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = b.Client().CoreV1().Pods(system).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	expect("cannot forward a port to pod globalreserve-system/globalreserve-0")
}
