//go:build e2e

package callers

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The scheduler of manifests/scheduler/second-remote, and its account.
const (
	remote          = "globalreserve-scheduler"
	remoteNamespace = "globalreserve-system"
	remoteUser      = "system:serviceaccount:" + remoteNamespace + ":" + remote
)

// A globalreserve-scheduler in mode remote, with the configuration and the rights of manifests/scheduler/second-remote,
// says who it is by the token in a file. The kubelet renews that file, and the token before is good for nothing then: the
// scheduler reads it again, for its requests and for its watch.
func TestRemoteSchedulerByToken(t *testing.T) {
	c := newCluster(t)
	c.applyRemote()
	first := c.accountToken(remote, true)
	file := filepath.Join(c.Dir(), "token")
	renew(t, file, first)
	c.startRemote(remote, file, c.servers[1].tls)
	c.CreatePod("first", remote, "1")
	c.AwaitBound("first")

	renew(t, file, c.accountToken(remote, false))
	require.NoError(t, c.Client().CoreV1().Secrets(remoteNamespace).Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	old := c.newCaller(nil, first)
	require.Eventually(t, func() bool {
		status, _, err := old.ask(t.Context(), http.MethodGet, c.servers[1].tls+"/v1/revision", nil)
		return err == nil && status == http.StatusUnauthorized
	}, testbed.Soon, testbed.Poll, "the first token is good for nothing")
	c.CreatePod("second", remote, "1")
	c.AwaitBound("second")

	require.NoError(t, c.servers[1].Kill())
	require.NoError(t, c.servers[1].Start(t.Context()))
	c.CreatePod("third", remote, "1")
	c.AwaitBound("third")
	assert.GreaterOrEqual(t, c.Metric("globalreserve_decisions_total", "verb", "bind", "result", "granted", "scheduler", remote), 3)
	c.RequireNeverOvercommitted()
}

// A scheduler that may not watch the ledger, or not act for its own name, says in its log, or in the condition of its
// pods, which right it lacks.
func TestRemoteSchedulerIsRefused(t *testing.T) {
	c := newCluster(t)
	c.applyRemote()
	file := func(account string) string {
		path := filepath.Join(c.Dir(), account)
		renew(t, path, c.accountToken(account, false))
		return path
	}
	c.startRemote("stranger", file("stranger"), c.servers[0].tls)
	c.CreatePod("p", "stranger", "1")
	c.Eventually(func(t *assert.CollectT) {
		assert.Contains(t, c.AwaitRefused("p"), "GlobalReserve: the server does not let this scheduler ask")
	})
	process, err := c.Process("stranger")
	require.NoError(t, err)
	log, err := os.ReadFile(process.LogFile())
	require.NoError(t, err)
	assert.Contains(t, string(log), "may not GET /v1/watch: a role has to give it the verb get on that nonResourceURL")

	c.grant("globalreserve-scheduler", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: remoteNamespace, Name: "nameless"})
	c.startRemote("nameless", file("nameless"), c.servers[0].tls)
	c.CreatePod("q", "nameless", "1")
	assert.Contains(t, c.AwaitRefused("q"), `may not act for scheduler "nameless": a role has to give it the verb use on schedulers.globalreserve.io of that name`)
}

// applyRemote gives the scheduler its rights.
func (c *cluster) applyRemote() {
	c.T.Helper()
	for _, name := range []string{"serviceaccount.yaml", "rbac.yaml"} {
		c.ApplyFile("manifests", "scheduler", "second-remote", name)
	}
}

// accountToken is a token of an account of the server's namespace. One that is bound is good for as long as the Secret is
// there.
func (c *cluster) accountToken(account string, bound bool) string {
	c.T.Helper()
	core := c.Client().CoreV1()
	if account != remote {
		_, err := core.ServiceAccounts(remoteNamespace).Create(c.T.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		require.NoError(c.T, err)
	}
	request := &authenticationv1.TokenRequest{}
	if bound {
		secret, err := core.Secrets(remoteNamespace).Create(c.T.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
		require.NoError(c.T, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}
	}
	token, err := core.ServiceAccounts(remoteNamespace).CreateToken(c.T.Context(), account, request, metav1.CreateOptions{})
	require.NoError(c.T, err)
	return token.Status.Token
}

// renew puts a file in the place of the one before, as the kubelet does.
func renew(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// startRemote starts a scheduler of a name with the shipped configuration, in which only that, the server's address and
// the paths of files are other ones.
func (c *cluster) startRemote(name, tokenFile, url string) {
	c.T.Helper()
	content, err := controlplane.ReadFile("manifests", "scheduler", "second-remote", "config.yaml")
	require.NoError(c.T, err)
	var shipped corev1.ConfigMap
	require.NoError(c.T, yaml.UnmarshalStrict(content, &shipped))
	config := shipped.Data["config.yaml"]
	for what, other := range map[string]string{
		"schedulerName: " + remote:                             "schedulerName: " + name,
		"https://globalreserve.globalreserve-system.svc:23456": url,
		"/var/run/secrets/kubernetes.io/serviceaccount/token":  tokenFile,
		"/etc/globalreserve-tls/ca.crt":                        c.CAFile(),
	} {
		require.Equal(c.T, 1, strings.Count(config, what), what)
		config = strings.Replace(config, what, other, 1)
	}
	kubeconfig, err := c.Kubeconfig(remoteUser, "system:serviceaccounts", "system:serviceaccounts:"+remoteNamespace)
	require.NoError(c.T, err)
	require.NoError(c.T, c.RunScheduler(c.T.Context(), controlplane.SchedulerOptions{
		Name: name, Config: []byte(config), Path: testbed.File(c.T, "bin", remote), Kubeconfig: kubeconfig, LeaderElection: true,
	}))
}
