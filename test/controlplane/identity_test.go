package controlplane

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func newClient(t *testing.T, config *rest.Config, err error) kubernetes.Interface {
	t.Helper()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// whoAmI asks the API server how it sees a client.
func whoAmI(t *testing.T, client kubernetes.Interface) authenticationv1.UserInfo {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(
		t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.UserInfo
}

func testIdentities(t *testing.T, c *ControlPlane, proxy *FaultProxy) {
	type source struct {
		kubeconfig func(string, ...string) (string, error)
		restConfig func(string, ...string) (*rest.Config, error)
	}
	sources := map[string]source{
		"direct":            {kubeconfig: c.Kubeconfig, restConfig: c.RESTConfig},
		"through the proxy": {kubeconfig: proxy.Kubeconfig, restConfig: proxy.RESTConfig},
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			config, err := source.restConfig("alice", "team-a", "team-b")
			client := newClient(t, config, err)
			user := whoAmI(t, client)
			require.Equal(t, "alice", user.Username)
			require.Subset(t, user.Groups, []string{"team-a", "team-b"})
			_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			require.True(t, apierrors.IsForbidden(err), "%v", err)

			path, err := source.kubeconfig("system:serviceaccount:ns:bob", AdminGroup)
			require.NoError(t, err)
			again, err := source.kubeconfig("system:serviceaccount:ns:bob", AdminGroup)
			require.NoError(t, err)
			require.Equal(t, path, again)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			fromFile, err := clientcmd.BuildConfigFromFlags("", path)
			client = newClient(t, fromFile, err)
			require.Equal(t, "system:serviceaccount:ns:bob", whoAmI(t, client).Username)
			_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
		})
	}
	direct, err := c.Kubeconfig("alice")
	require.NoError(t, err)
	proxied, err := proxy.Kubeconfig("alice")
	require.NoError(t, err)
	grouped, err := c.Kubeconfig("alice", "team-a")
	require.NoError(t, err)
	require.NotEqual(t, direct, proxied)
	require.NotEqual(t, direct, grouped)
}
