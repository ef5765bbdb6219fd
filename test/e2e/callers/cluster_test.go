package callers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// team is a scheduler that nobody runs: tests ask in its name.
const team = "team-scheduler"

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster has two servers, the leader first, that serve TLS, and plain HTTP on loopback.
type cluster struct {
	testbed.Cluster
	nodes   []string
	servers []server
}

type server struct {
	*testbed.Server
	tls string // URL
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.nodes = c.AddNodes(2,
		controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("64"),
			corev1.ResourceMemory: resource.MustParse("64Gi"),
		}})
	for _, name := range []string{"leader", "follower"} {
		webhook, err := clusterload.NewWebhook(c.ControlPlane)
		require.NoError(t, err)
		started := testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Name: name, Args: webhook.Args})
		c.servers = append(c.servers, server{started, strings.TrimSuffix(webhook.URL, "/admission")})
	}
	c.Ledger = c.servers[0].Caller
	require.NoError(t, clusterload.GrantRoles(t.Context(), c.ControlPlane))
	return c
}

// grant gives a subject one of our roles, and returns when the API server knows: who asked before would be denied for a
// while.
func (c *cluster) grant(role, subject string) {
	c.T.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {generateName: test-}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [%s]
`, role, subject))
}

func accountOf(name string) string {
	return fmt.Sprintf("{kind: ServiceAccount, namespace: %s, name: %s}", testbed.Namespace, name)
}

func userOf(name string) string { return fmt.Sprintf("{kind: User, name: %s}", name) }

// role makes a role.
func (c *cluster) role(name string, rules ...rbacv1.PolicyRule) {
	c.T.Helper()
	_, err := c.Client().RbacV1().ClusterRoles().Create(c.T.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(c.T, err)
}

// caller is somebody with a certificate or a token.
type caller struct {
	client *http.Client
	token  string
}

func (c *cluster) newCaller(token, user string, groups ...string) *caller {
	transport := &http.Transport{TLSClientConfig: c.ClientTLS(user, groups...), ForceAttemptHTTP2: true}
	c.T.Cleanup(transport.CloseIdleConnections)
	return &caller{&http.Client{Transport: testbed.Documented(transport), Timeout: testbed.Soon}, token}
}

// withCertificate is a user with a certificate of the cluster's authority.
func (c *cluster) withCertificate(user string, groups ...string) *caller {
	return c.newCaller("", user, groups...)
}

func (c *cluster) withToken(account string) *caller { return c.newCaller(c.Token(account), "") }

// ask sends a request, and returns the status and the beginning of the answer.
func (w *caller) ask(ctx context.Context, method, url string, question any) (status int, answer string, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, testbed.Soon)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	// Nobody is who he says he is.
	request.Header.Set("X-Remote-User", controlplane.AdminUser)
	request.Header.Set("X-Remote-Group", controlplane.AdminGroup)
	response, err := w.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	beginning := make([]byte, 1000) // a watch goes on
	n, _ := response.Body.Read(beginning)
	return response.StatusCode, string(beginning[:n]), nil
}

// revision is the ledger's.
func (c *cluster) revision() uint64 {
	c.T.Helper()
	var answer struct{ Revision uint64 }
	require.NoError(c.T, c.servers[0].Get(c.T.Context(), "/v1/revision", &answer))
	return answer.Revision
}
