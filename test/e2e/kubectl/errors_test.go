//go:build e2e

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
