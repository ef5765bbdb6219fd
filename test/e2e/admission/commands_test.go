//go:build e2e

package admission

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// commands are the blocks of commands in a section of a README.
func commands(t *testing.T, heading string, path ...string) []string {
	t.Helper()
	content, err := os.ReadFile(testbed.File(t, path...))
	require.NoError(t, err)
	_, section, found := strings.Cut("\n"+string(content), "\n"+heading+"\n")
	require.True(t, found, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for paragraph := range strings.SplitSeq(section, "\n\n") {
		if strings.HasPrefix(paragraph, "    ") {
			blocks = append(blocks, strings.ReplaceAll("\n"+paragraph, "\n    ", "\n"))
		}
	}
	return blocks
}

// A certificate by openssl, and webhooks at a URL, made by the commands of manifests/admission/README.md as they are
// written there, have a server beside the API server asked.
func TestCommandsForACertificateOfOnesOwn(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		// as `make e2e` says, too
		t.Log("NOT RUN: the commands of manifests/admission/README.md, as there is no openssl here")
		return
	}
	own := commands(t, "## A certificate of your own", "manifests", "admission", "README.md")
	beside := commands(t, "## Beside a static pod", "manifests", "admission", "README.md")
	require.Len(t, own, 3)
	require.Len(t, beside, 3)
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.AddNodes(1, controlplane.NodeTemplate{})
	require.NoError(t, c.CreateNamespace(t.Context(), "globalreserve-system"))

	folder := c.shell(own...)
	requireNamed(t, folder, "globalreserve.globalreserve-system.svc")
	secret, err := c.Client().CoreV1().Secrets("globalreserve-system").
		Get(t.Context(), "globalreserve-tls", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, secret.Data["ca.crt"])

	port, err := c.FreePort()
	require.NoError(t, err)
	here := func(text string) string { return strings.ReplaceAll(text, "23457", fmt.Sprint(port)) }
	folder = c.shell(beside[0], own[1])
	requireNamed(t, folder, "127.0.0.1")
	var args []string
	for argument := range strings.SplitSeq(strings.TrimSpace(here(beside[1])), "\n") {
		args = append(args, strings.NewReplacer(
			"- --", "--", "/etc/kubernetes/globalreserve-tls", folder, "/etc/kubernetes/pki/ca.crt", c.CAFile(),
		).Replace(argument))
	}
	c.StartServer(clusterload.ServerOptions{Args: args})
	c.shellIn(folder, here(beside[2]))
	c.create("large", "5")
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.BindDirectly("large", "node-0", metav1.DryRunAll), "requested 5 CPU, 4 free")
	})
}

// The policy that lets another namespace's scheduler reach the server is one.
func TestCommandForTheNetwork(t *testing.T) {
	content, err := os.ReadFile(testbed.File(t, "manifests", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(content), "kind: NetworkPolicy")
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	require.NoError(t, c.CreateNamespace(t.Context(), "globalreserve-system"))
	for _, block := range commands(t, "# Manifests", "manifests", "README.md") {
		if strings.Contains(block, "kind: NetworkPolicy") {
			c.shell(block)
		}
	}
	policy, err := c.Client().NetworkingV1().NetworkPolicies("globalreserve-system").
		Get(t.Context(), "globalreserve-from-batch", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, policy.Spec.Ingress, 1)
	assert.Equal(t, "batch", policy.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
	assert.Equal(t, 23456, policy.Spec.Ingress[0].Ports[0].Port.IntValue())
}

// shell runs commands in a folder of their own that has the manifests, and returns it.
func (c *cluster) shell(blocks ...string) (folder string) {
	c.T.Helper()
	folder = c.T.TempDir()
	require.NoError(c.T, os.Symlink(testbed.File(c.T, "manifests"), filepath.Join(folder, "manifests")))
	c.shellIn(folder, blocks...)
	return folder
}

func (c *cluster) shellIn(folder string, blocks ...string) {
	c.T.Helper()
	printed, err := c.Shell(folder, strings.Join(blocks, "\n"))
	require.NoError(c.T, err, "%s", printed)
}

// requireNamed fails where the certificate in a folder is not for a name, or not of the authority beside it.
func requireNamed(t *testing.T, folder, name string) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
	require.NoError(t, err)
	block, _ := pem.Decode(content)
	require.NotNil(t, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	_, err = certificate.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
	require.NoError(t, err)
}
