//go:build e2e

package flood

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestFlowSchemas has the API server say by which FlowSchema a request of the server takes its turn: by those of
// manifests/base, and not by the one that it would share with all tenants' service accounts.
func TestFlowSchemas(t *testing.T) {
	c := testbed.NewCluster(t, controlplane.StartT(t, controlplane.Options{}))
	config := c.RESTConfig("system:serviceaccount:globalreserve-system:globalreserve", "system:serviceaccounts")
	server, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	const bind = "/api/v1/namespaces/default/pods/p/binding"
	awaitSchema := func(schema, method, path string) {
		of, err := c.Client().FlowcontrolV1().FlowSchemas().Get(t.Context(), schema, metav1.GetOptions{})
		require.NoError(t, err)
		c.Eventually(func(collect *assert.CollectT) { // the API server reads them when it comes to it
			request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader("{}"))
			require.NoError(collect, err)
			response, err := server.Do(request) // whatever is answered
			require.NoError(collect, err)
			assert.NoError(collect, response.Body.Close())
			assert.Equal(collect, string(of.UID), response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), "%s: %s", schema, path)
		})
	}
	awaitSchema("service-accounts", http.MethodPost, bind)
	c.ApplyFile("manifests", "base", "flowcontrol.yaml")
	awaitSchema("globalreserve", http.MethodPost, bind)
	awaitSchema("globalreserve-reviews", http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews")
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/globalreserve"
	awaitSchema("globalreserve-lease", http.MethodGet, lease)
}
