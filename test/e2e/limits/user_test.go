//go:build e2e || soak

package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// tenantRights are those of a user who writes pods in one namespace, and who may ask the server to reserve.
const tenantRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch, create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-user}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reserve-for-nobody}
rules:
- {nonResourceURLs: [/reserve], verbs: [post]}
- {apiGroups: [globalreserve.io], resources: [schedulers], resourceNames: [nobody], verbs: [use]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reserve-for-nobody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reserve-for-nobody}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-user}]
`

// tenant is a user of one namespace, by his certificate.
type tenant struct {
	pods typedcorev1.PodInterface
	http *http.Client
	url  string // of the server
}

func newTenant(c *testbed.Cluster, url string) *tenant {
	c.T.Helper()
	c.Apply(tenantRights)
	config, err := c.RESTConfig("tenant-user")
	require.NoError(c.T, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(c.T, err)
	tls, err := rest.TLSConfigFor(config)
	require.NoError(c.T, err)
	transport := &http.Transport{TLSClientConfig: tls}
	c.T.Cleanup(transport.CloseIdleConnections)
	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).List(c.T.Context(), metav1.ListOptions{})
	require.True(c.T, apierrors.IsForbidden(err), "%v", err)
	return &tenant{client.CoreV1().Pods(c.Namespace), &http.Client{Transport: transport, Timeout: testbed.Soon}, url}
}

// reserve asks the server, and reports whether it has granted that.
func (a *tenant) reserve(ctx context.Context, question *reserver.Request) (granted bool, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+testbed.ReservePath, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	response, err := a.http.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s: %w", response.Status, content, err)
	}
	var answer reserver.Answer
	err = json.Unmarshal(content, &answer)
	return err == nil && answer.Error == "", err
}
