//go:build e2e

package install

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// block is commands in a document.
var block = regexp.MustCompile(`(?m)(?:^    .*\n)+`)

// The commands of docs/install-helm.md, as they are written there, install a release, have it decide after it has
// observed, put files onto a node, and have the API server ask it. What uninstalls it leaves the definitions.
func TestCommands(t *testing.T) {
	c := testbed.NewCluster(t, controlplane.StartT(t, controlplane.Options{}))
	text, err := os.ReadFile(testbed.File(t, "docs", "install-helm.md"))
	require.NoError(t, err)
	commands := block.FindAllString(string(text), -1)
	require.Len(t, commands, 4)
	folder := t.TempDir()
	for _, name := range []string{"bin", "charts"} {
		require.NoError(t, os.Symlink(testbed.File(t, name), filepath.Join(folder, name)))
	}
	for _, name := range []string{"globalreserve", "kubernetes/manifests"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "etc", name), 0o700))
	}
	shell := func(commands string) string {
		commands = strings.ReplaceAll(commands, "/etc/", folder+"/etc/")
		printed, err := c.Shell(folder, commands, testbed.File(t, "bin", "tools"))
		require.NoError(t, err, "%s\n%s", commands, printed)
		return printed
	}
	const upgrade = "helm upgrade globalreserve charts/globalreserve --namespace globalreserve-system --reuse-values " +
		"--set "
	args := func() []string {
		deployment, err := c.Client().AppsV1().Deployments(namespace).Get(t.Context(), "globalreserve", metav1.GetOptions{})
		require.NoError(t, err)
		return deployment.Spec.Template.Spec.Containers[0].Args
	}

	assert.Contains(t, shell(commands[0]), "kubectl -n globalreserve-system rollout status deployment/globalreserve")
	assert.Contains(t, shell(upgrade+"observe=true"), "globalreserve_observed_conflicts_total")
	assert.Contains(t, args(), "--observe")
	shell(commands[1])
	assert.NotContains(t, args(), "--observe")
	shell(commands[3])
	assert.Contains(t, args(), "--admission-client-names=kube-apiserver-kubelet-client")
	ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	require.NoError(t, err)
	webhooks, err := c.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().
		Get(t.Context(), "zz-globalreserve", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, string(ca), string(webhooks.Webhooks[0].ClientConfig.CABundle))

	notes := shell(upgrade + "mode=static-pod,admission=off")
	for command := range strings.SplitSeq(strings.TrimSpace(commands[2]), "\n") {
		assert.Contains(t, notes, strings.TrimSpace(command), "the notes say the same")
	}
	shell(commands[2])
	pod, err := os.ReadFile(filepath.Join(folder, "etc", "kubernetes", "manifests", "globalreserve.yaml"))
	require.NoError(t, err)
	assert.Equal(t, "Pod", documents(t, pod)[0].GetKind())

	shell("helm uninstall globalreserve --namespace globalreserve-system")
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition",
	})
	definitions, err := c.Resource(definition, "")
	require.NoError(t, err)
	left, err := definitions.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, left.Items, 5)
}
