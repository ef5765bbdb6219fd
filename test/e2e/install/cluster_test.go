//go:build e2e

package install

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, with our definitions and those of others.
var shared = controlplane.Shared{Prepare: prepare}

// auditLog is where its API server writes what servers ask of it.
var auditLog string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "globalreserve-audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	auditLog = filepath.Join(folder, "audit.log")
	policy := filepath.Join(folder, "policy.yaml")
	err = os.WriteFile(policy, fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: [%s]}
- {level: Metadata, userGroups: ["system:serviceaccounts:%s"]}
- {level: None}
`, staticUser, namespace), 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.Options.APIServerArgs = []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}
	return controlplane.Run(m, &shared)
}

func prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := cp.Apply(ctx, testbed.ForeignDefinitions(), ""); err != nil {
		return err
	}
	for _, kind := range testbed.ForeignKinds {
		if err := cp.AwaitServed(ctx, kind); err != nil {
			return err
		}
	}
	return crd.Prepare(ctx, cp)
}

// cluster is a control plane on which one rendering at a time is installed.
type cluster struct {
	testbed.Cluster
	heard int64 // how much of the audit log is of those before
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	if info, err := os.Stat(auditLog); err == nil {
		c.heard = info.Size()
	}
	c.createNamespace(t)
	return c
}

// denied is what the API server has denied those whom it knows by the rights that were rendered.
func (c *cluster) denied(t *testing.T) (all []string) {
	t.Helper()
	file, err := os.Open(auditLog)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Seek(c.heard, 0)
	require.NoError(t, err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	asked := 0
	for lines.Scan() {
		var event struct {
			Verb           string
			RequestURI     string
			User           struct{ Username string }
			ResponseStatus metav1.Status
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &event))
		asked++
		if event.ResponseStatus.Code == 403 {
			all = append(all, fmt.Sprintf("%s may not %s %s: %s", event.User.Username, event.Verb, event.RequestURI,
				event.ResponseStatus.Message))
		}
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, asked, "the audit log has nothing of a server")
	slices.Sort(all)
	return slices.Compact(all)
}

// awaitRights waits until the API server gives a user what the roles say that are bound to it.
func (c *cluster) awaitRights(t *testing.T, objects []*unstructured.Unstructured, user string) {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "ClusterRoleBinding" && object.GetKind() != "RoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding // which has all that a ClusterRoleBinding has
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding))
		binding.Subjects = slices.DeleteFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Name != user && "system:serviceaccount:"+s.Namespace+":"+s.Name != user
		})
		require.NoError(t, c.AwaitRights(t.Context(), &binding))
	}
}
