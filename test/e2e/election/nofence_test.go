//go:build e2e

package election

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// Without the fence who takes over waits until what was sent before is carried out, or never will be.
func TestWithoutAFence(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	removeFence(t, cp)
	begun := time.Now()
	e, took, _ := elector(t, cp, "only")
	<-took
	assert.Greater(t, time.Since(begun), 2*time.Second)
	eventually(t, func(t *assert.CollectT) { assert.Empty(t, e.Leads()) })
	fence, _ := e.Fence()
	assert.False(t, fence.Up)
	assert.Contains(t, fence.Why, "manifests/base/fence.yaml")
}

// What carries no term is not refused, whether there is a term, a LedgerTerm, or a definition of it.
func TestFenceIsInNobodysWay(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	require.NoError(t, bind(t, cp, "without-a-term", nil))
	_, took, stop := elector(t, cp, "only")
	<-took
	require.NoError(t, bind(t, cp, "with-a-term", nil))
	stop()
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	require.NoError(t, client.Resource(definitions).Delete(t.Context(), "ledgerterms.globalreserve.io", metav1.DeleteOptions{}))
	for i := range 30 { // the API server forgets little by little
		require.NoError(t, bind(t, cp, fmt.Sprint("without-a-definition-", i), nil))
		<-time.After(100 * time.Millisecond)
	}
}

func removeFence(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	bindings := cp.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	require.NoError(t, bindings.Delete(t.Context(), election.FenceName, metav1.DeleteOptions{}))
}
