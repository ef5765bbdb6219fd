//go:build e2e

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// said returns what the only command that begins so has said.
func said(t *testing.T, all map[string]string, command string) string {
	t.Helper()
	var found []string
	for typed, answer := range all {
		if strings.HasPrefix(typed, command) {
			found = append(found, answer)
		}
	}
	require.Len(t, found, 1, "commands that begin with %q", command)
	return found[0]
}

// TestCluster starts `make cluster`, does what it says and what the documents say, and has it cleared away.
func TestCluster(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("apiVersion: config.globalreserve.io/v1alpha1\n"+
		"kind: GlobalReservePolicy\nnamespaces: {limited: {maxSlots: 2}}\n"), 0o600))
	p := start(t, "cluster", "--nodes=3", "--cpus=4", "--policy-file="+policy)
	answers := p.typeIn(append(p.commands(), "  kubectl create namespace limited",
		"  ! kubectl reserve create three -n limited --cpu 1m --replicas 3 --wait=10s --ledger-url $URL"))
	for command, want := range map[string]string{
		"kubectl get nodes":      "node-2",
		"kubectl rollout status": "successfully rolled out",
		"kubectl run mine":       "pod/mine created",
		"curl -sS $URL/v1/alloc": `"Pod":"mine"`,
		"kubectl wait":           "condition met",
		"kubectl reserve create": "kept available on",
		"kubectl get rsv":        "0/2",
		"! kubectl reserve":      "namespaces.maxSlots",
		"kubectl reserve nodes":  "#",
		`curl -sS -H 'Content-Type: application/json' -d "{\"Sch`: `"FailedPods":[],"Error":""`,
		`curl -sS -H 'Content-Type: application/json' -d "{\"Pod`: `"Error":""`,
	} {
		assert.Contains(t, said(t, answers, command), want, command)
	}
	printed := p.text()
	for _, want := range []string{
		"default-scheduler, second-scheduler and gang-scheduler", "my-scheduler", "filterVerb: filter", "/reserve",
		"/openapi.yaml",
		"export KUBECONFIG=", "page        http://",
	} {
		assert.Contains(t, printed, want)
	}
	p.runDocuments(t)
	p.interrupt()
}
