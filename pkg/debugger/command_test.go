package debugger

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
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

func TestCommandsAskAServer(t *testing.T) {
	w := newWorld()
	same := reserver.DiffAnswer{Server: "me", Compared: []string{"nodes", "pods"}}
	differs := same
	differs.Differences = []reserver.Difference{{
		Kind: "stale_node", Object: "node n2", Ledger: "a node",
		Cluster: "no such node",
	}}
	server := serve(t, map[string]any{"/debug/ledger": w.dump(), "/debug/diff": same})
	other := serve(t, map[string]any{"/debug/diff": differs})

	out, code, err := run(t, "diff", "--server", server)
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "server me: 0 differences in [nodes pods]\n", out)

	out, code, err = run(t, "diff", "--server", other)
	require.ErrorIs(t, err, errDiffers)
	assert.Equal(t, 1, code)
	assert.Equal(t, "stale_node: node n2: the ledger has a node, the cluster has no such node\n"+
		"server me: 1 differences in [nodes pods]\n", out)
	out, _, err = run(t, "diff", "-o", "json", "--server", other)
	require.ErrorIs(t, err, errDiffers)
	var answer reserver.DiffAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	assert.Equal(t, differs, answer)

	out, _, err = run(t, "dump", "--server", server)
	require.NoError(t, err)
	assert.Contains(t, out, "\nallocation of pod default/p on node n1: Bound")
	out, _, err = run(t, "dump", "-o", "json", "--server", server)
	require.NoError(t, err)
	assert.Contains(t, out, `"Allocations": [`)
}
