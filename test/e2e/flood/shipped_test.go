//go:build soak

package flood

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	authorities            *x509.CertPool
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
		health: fmt.Sprintf("http://127.0.0.1:%d", health), authorities: x509.NewCertPool(),
		memory:     container.Resources.Limits.Memory().Value(),
		liveness:   seconds(container.LivenessProbe.TimeoutSeconds),
		readiness:  seconds(container.ReadinessProbe.TimeoutSeconds),
		lateProbes: int(min(container.LivenessProbe.FailureThreshold, container.ReadinessProbe.FailureThreshold)) - 1,
	}
	require.True(t, s.authorities.AppendCertsFromPEM(webhook.CA))
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
	binding, err := c.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clients},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "globalreserve-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: clients}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.AwaitRights(t.Context(), (*rbacv1.RoleBinding)(binding)))
	return s
}

// clients is the group of those who may ask the server.
const clients = "clients"

// as is what somebody shows to the server, and believes of it.
func (s *shipped) as(t *testing.T, user string) *tls.Config {
	certificate, key, err := s.cluster.ClientCertificate(time.Hour, user, clients)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: s.authorities, MinVersion: tls.VersionTLS12,
		ServerName: "127.0.0.1",
	}
}

// client is one with a certificate for a user.
func (s *shipped) client(t *testing.T, user string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: s.as(t, user), MaxIdleConnsPerHost: floods,
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

// host is the address of a URL.
func host(t *testing.T, of string) string {
	u, err := url.Parse(of)
	require.NoError(t, err)
	return u.Host
}
