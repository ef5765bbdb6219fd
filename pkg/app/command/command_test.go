package command

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandLineMistakesAreExplained(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown flag":           {[]string{"--nosuch"}, "unknown flag: --nosuch: see globalreserve --help"},
		"flag of the wrong kind": {[]string{"--port", "http"}, "see globalreserve --help"},
		"duration without a unit": {
			[]string{"--bind-timeout", "5"},
			`missing unit in duration "5": see globalreserve --help`,
		},
		"unknown command": {[]string{"run"}, `unknown command "run" for "globalreserve"`},
		"unknown flag of a command": {
			[]string{"policy", "validate", "--strict"},
			"unknown flag: --strict: see globalreserve policy validate --help",
		},
		"neither cluster nor kubeconfig": {nil, "give --kubeconfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			cmd := New()
			cmd.SetArgs(append([]string{}, tt.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			require.ErrorContains(t, cmd.ExecuteContext(t.Context()), tt.want)
		})
	}
}
