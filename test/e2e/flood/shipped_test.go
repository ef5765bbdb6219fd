//go:build soak

package flood

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shipped is a server as manifests/base runs it: its flags and its memory limit. Besides it serves plain HTTP on
// loopback, by which tests learn that it is ready.
type shipped struct {
	*clusterload.Server
	cluster                *testbed.Cluster
	url, admission, health string
	memory                 int64 // the limit, in bytes
	liveness, readiness    time.Duration
	lateProbes             int // one after another, that the kubelet lets pass
}

func startShipped(t *testing.T, c *testbed.Cluster) *shipped {
	t.Helper()
	var deployment appsv1.Deployment
	read(t, &deployment, "deployment.yaml")
	container := deployment.Spec.Template.Spec.Containers[0]
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	health, err := c.FreePort()
	require.NoError(t, err)
	s := &shipped{
		cluster: c, url: strings.TrimSuffix(webhook.URL, "/admission"), admission: webhook.URL,
		health:     fmt.Sprintf("http://127.0.0.1:%d", health),
		memory:     container.Resources.Limits.Memory().Value(),
		liveness:   seconds(container.LivenessProbe.TimeoutSeconds),
		readiness:  seconds(container.ReadinessProbe.TimeoutSeconds),
		lateProbes: int(min(container.LivenessProbe.FailureThreshold, container.ReadinessProbe.FailureThreshold)) - 1,
	}
	// What belongs to this machine is another: ports, and where files are. Those of TLS come last.
	local := map[string]string{
		"--bind-address": "127.0.0.1", "--health-address": fmt.Sprintf("127.0.0.1:%d", health),
		"--peer-address": "127.0.0.1:0",
		"--policy-file":  policyFile(t), "--shutdown-delay": "0s",
	}
	var args []string
	for _, arg := range container.Args {
		flag, _, _ := strings.Cut(arg, "=")
		if value, ok := local[flag]; ok {
			arg = flag + "=" + value
		}
		args = append(args, arg)
	}
	s.Server, err = clusterload.StartServer(t.Context(), c.ControlPlane, clusterload.ServerOptions{
		Args: append(args, webhook.Args...),
		// As the server itself does by the container's limit.
		Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", s.memory/10*9)},
	})
	require.NoError(t, err)
	require.NoError(t, clusterload.GrantRoles(t.Context(), c.ControlPlane))
	c.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: clients}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: globalreserve-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: clients}]
`)
	return s
}

// clients is the group of those who may ask the server.
const clients = "clients"

// client is one with a certificate for a user.
func (s *shipped) client(user string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: s.cluster.ClientTLS(user, clients), MaxIdleConnsPerHost: floods,
		DisableCompression: true,
	}}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// policyFile is the policy of manifests/base.
func policyFile(t *testing.T) string {
	var policy corev1.ConfigMap
	read(t, &policy, "policy.yaml")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policy.Data["policy.yaml"]), 0o600))
	return file
}

func read(t *testing.T, object any, name string) {
	content, err := controlplane.ReadFile("manifests", "base", name)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(content, object))
}
