//go:build e2e

package callers

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A token is good for nothing, at any server, once what it is bound to is gone.
func TestTokenThatWasTakenBack(t *testing.T) {
	c := newCluster(t)
	core := c.Client().CoreV1()
	secret, err := core.Secrets(c.Namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ServiceAccounts(c.Namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := core.ServiceAccounts(c.Namespace).CreateToken(t.Context(), "viewer", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.grant("globalreserve-viewer", accountOf("viewer"))
	viewer := c.newCaller(nil, token.Status.Token)
	asks := func(url string) int {
		status, _, err := viewer.ask(t.Context(), http.MethodGet, url+"/v1/revision", nil)
		require.NoError(t, err)
		return status
	}
	for _, server := range c.servers {
		require.Equal(t, http.StatusOK, asks(server.tls))
	}
	require.NoError(t, core.Secrets(c.Namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{}))
	for _, server := range c.servers {
		c.Eventually(func(t *assert.CollectT) { assert.Equal(t, http.StatusUnauthorized, asks(server.tls)) })
	}
}
