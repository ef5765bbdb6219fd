package kubectl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clienttesting "k8s.io/client-go/testing"
)

// TestBadCommandLines checks that a command line that makes no sense is refused before anything is
// asked or changed, and that it is said what to write instead.
func TestBadCommandLines(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"unknown command":         {[]string{"creat"}, `there is no command "creat": did you mean create?`},
		"unknown command far off": {[]string{"frobnicate"}, "see kubectl reserve --help"},
		"unknown flag":            {[]string{"nodes", "--frob"}, "unknown flag: --frob: see kubectl reserve nodes --help"},
		"unknown output":          {[]string{"nodes", "-o", "xml"}, "give one of table, wide, yaml, json, name"},
		"two nodes":               {[]string{"nodes", "a", "b"}, "at most one NAME"},
		"one overcommitted node":  {[]string{"nodes", "a", "--overcommitted"}, "leave it out"},
		"explain nothing":         {[]string{"explain"}, "exactly one POD"},
		"unknown state":           {[]string{"pods", "--state", "Lost"}, "give one of Binding, Bound"},
		"version of something":    {[]string{"version", "client"}, "takes no arguments"},
		"server without a scheme": {
			[]string{"nodes", "--ledger-url", "localhost:23456"},
			"give one such as http://127.0.0.1:23456",
		},
		"server that is no URL":       {[]string{"nodes", "--ledger-url", "http://a b"}, "is not the URL of a server"},
		"service without a namespace": {[]string{"nodes", "--service", "globalreserve"}, "give namespace/name"},
		"service with much":           {[]string{"nodes", "--service", "a/b/c"}, "give namespace/name"},
		"service without a port":      {[]string{"nodes", "--service", "a/b:"}, "give namespace/name"},
		"timeout":                     {[]string{"nodes", "--request-timeout", "soon"}, "give one such as 30s"},
		"negative timeout":            {[]string{"nodes", "--request-timeout", "-3s"}, "give one such as 30s"},

		"create nothing":        {[]string{"create"}, "exactly one NAME and got 0"},
		"bad time to wait":      {[]string{"create", "a", "--cpu", "1", "--wait=soon"}, "invalid duration"},
		"negative time to wait": {[]string{"create", "a", "--cpu", "1", "--wait=-5s"}, "give one such as 2m"},
		"wait for a dry run": {
			[]string{"create", "a", "--cpu", "1", "--wait", "--dry-run=client"},
			"nothing is created",
		},
		"unknown dry run": {
			[]string{"create", "a", "--cpu", "1", "--dry-run=maybe"},
			"give one of none, client, server",
		},
		"no amounts":              {[]string{"create", "a"}, "at least one of --cpu, --memory and --resource"},
		"cpu in words":            {[]string{"create", "a", "--cpu", "four"}, "such as 4, 500m or 8Gi"},
		"memory in GB":            {[]string{"create", "a", "--memory", "8GB"}, "such as 4, 500m or 8Gi"},
		"resource without amount": {[]string{"create", "a", "--resource", "nvidia.com/gpu"}, "write name=amount"},
		"resource with no amount": {[]string{"create", "a", "--resource", "nvidia.com/gpu="}, "write name=amount"},
		"resource without name":   {[]string{"create", "a", "--resource", "=2"}, "names no resource"},
		"resource in bad letters": {[]string{"create", "a", "--resource", "my gpu=2"}, "names no resource"},
		"cpu twice":               {[]string{"create", "a", "--cpu", "1", "--resource", "cpu=2"}, "given twice"},
		"no replicas":             {[]string{"create", "a", "--cpu", "1", "--replicas", "0"}, "1 to 1000 slots"},
		"too many replicas":       {[]string{"create", "a", "--cpu", "1", "--replicas", "1001"}, "1 to 1000 slots"},
		"replicas in words": {
			[]string{"create", "a", "--cpu", "1", "--replicas", "three"},
			"see kubectl reserve create --help",
		},
		"node selector of a label": {
			[]string{"create", "a", "--cpu", "1", "--node-selector", "gpu"},
			"must be formatted as key=value",
		},
		"bad selector":            {[]string{"create", "a", "--cpu", "1", "--selector", "a=b=c"}, "is not a label selector"},
		"controller without kind": {[]string{"create", "a", "--cpu", "1", "--controller", "web"}, "Kind/name"},
		"gang of no kind":         {[]string{"create", "a", "--cpu", "1", "--gang", "/a"}, "names no kind"},
		"unknown policy": {
			[]string{"create", "a", "--cpu", "1", "--policy", "Twice"},
			"give one of Once, Aligned, Restricted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			got := r.run(tt.args...)
			assert.Equal(t, exitUsage, got.code, got.err)
			assert.Contains(t, got.err, tt.says)
			assert.Empty(t, got.out)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line: %s", got.err)
			assert.Empty(t, r.asked)
			assert.Empty(t, r.reservations.Actions())
			assert.Empty(t, r.kube.Actions())
		})
	}
}

func TestControllerKinds(t *testing.T) {
	for text, want := range map[string]string{
		"Deployment": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
		"sts": "StatefulSet", "rs": "ReplicaSet", "ds": "DaemonSet", "jobs": "Job", "rc": "ReplicationController",
		"Rollout": "Rollout",
	} {
		assert.Equal(t, want, controllerKind(text), text)
	}
}

// TestHelp checks that every command explains itself with an example, and that its own flags are not
// buried among those of all commands.
func TestHelp(t *testing.T) {
	r := newRig(t)
	for _, command := range []string{"create", "nodes", "explain", "pods", "version"} {
		got := r.run(command, "--help")
		assert.Equal(t, exitOK, got.code)
		assert.Contains(t, got.out, "Examples:\n", command)
		assert.Contains(t, got.out, "  kubectl reserve "+command, command)
		assert.NotContains(t, got.out, "--as-group", command)
		assert.Contains(t, got.out, "see kubectl reserve --help", command)
	}
	got := r.run()
	assert.Equal(t, exitOK, got.code)
	for _, part := range []string{
		"Exit codes:", "--as-group", "--kubeconfig", "--ledger-url string", "--service string",
		"--namespace",
	} {
		assert.Contains(t, got.out, part)
	}
}

// TestCreateSendsStrictly checks what the API server is asked to do, which the fake does not.
func TestCreateSendsStrictly(t *testing.T) {
	for dryRun, want := range map[string][]string{"none": nil, "server": {"All"}} {
		r := newRig(t)
		require.Equal(t, exitOK, r.run("create", "a", "--cpu", "1", "-n", "batch", "--dry-run", dryRun).code)
		created := r.reservations.Actions()[0].(clienttesting.CreateActionImpl)
		assert.Equal(t, want, created.CreateOptions.DryRun)
		assert.Equal(t, "Strict", created.CreateOptions.FieldValidation)
		assert.Equal(t, "batch", created.Namespace)
	}
	r := newRig(t)
	require.Equal(t, exitOK, r.run("create", "a", "--cpu", "1", "--dry-run=client").code)
	assert.Empty(t, r.reservations.Actions())
}
