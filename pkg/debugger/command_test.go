package debugger

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// run runs a command, and returns what it prints, and the code that the program ends with.
func run(t *testing.T, args ...string) (out string, code int, err error) {
	t.Helper()
	var printed strings.Builder
	cmd := NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&printed)
	cmd.SetErr(&printed)
	err = cmd.ExecuteContext(t.Context())
	if err != nil {
		exit := &ExitError{}
		require.ErrorAs(t, err, &exit)
		code = exit.Code
	}
	return printed.String(), code, err
}

func TestMistakesEndWithTwo(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown flag":      {[]string{"diff", "--nosuch"}, "unknown flag: --nosuch: see debug diff --help"},
		"an argument":       {[]string{"dump", "node-1"}, `unknown command "node-1" for "debug dump": see debug dump --help`},
		"unknown format":    {[]string{"dump", "-o", "yaml"}, `--output "yaml" is unknown; give text or json`},
		"no URL":            {[]string{"dump", "--server", "localhost"}, `--server: "localhost" is not the URL of a server`},
		"server is away":    {[]string{"dump", "--server", "http://127.0.0.1:1"}, "check --server"},
		"no such file":      {[]string{"diff", "--kubeconfig", "/none"}, "give --kubeconfig"},
		"misspelled":        {[]string{"dif"}, `unknown command "dif" for "debug"`},
		"half a credential": {[]string{"dump", "--server", "https://h:1", "--server-cert-file", "c"}, "belong together"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, code, err := run(t, tt.args...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, 2, code)
		})
	}
}

// serve answers with one thing for each path.
func serve(t *testing.T, answers map[string]any) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // a client that is gone shows in the test
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestCommandsAskAServerAndACluster(t *testing.T) {
	w := newWorld()
	w.about.Objects, w.about.IgnoredResources = false, []string{"example.com/ignored"}
	server := serve(t, map[string]any{"/debug/ledger": w.dump()})
	pod := aPod()
	pod.Spec.Containers[0].Resources.Requests["example.com/ignored"] = pod.Spec.Containers[0].Resources.Requests["cpu"]
	kubeconfig := func(nodes ...v1.Node) string {
		api := serve(t, map[string]any{
			"/api/v1/pods": &v1.PodList{Items: []v1.Pod{*pod}}, "/api/v1/nodes": &v1.NodeList{Items: nodes},
		})
		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c,
			clusters: [{name: c, cluster: {server: "`+api+`"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600))
		return file
	}

	out, code, err := run(t, "diff", "--server", server, "--kubeconfig", kubeconfig(*aNode()))
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "server me: 0 differences in [nodes pods]\n", out)

	out, code, err = run(t, "diff", "-o", "json", "--server", server, "--kubeconfig", kubeconfig())
	require.ErrorIs(t, err, errDiffers)
	assert.Equal(t, 1, code)
	var report Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Differences, 1)
	assert.Equal(t, "node n1", report.Differences[0].Object)

	out, _, err = run(t, "dump", "--server", server)
	require.NoError(t, err)
	assert.Contains(t, out, "\nallocation of pod default/p on node n1: Bound")
	out, _, err = run(t, "dump", "-o", "json", "--server", server)
	require.NoError(t, err)
	assert.Contains(t, out, `"Allocations": [`)
}
