package devices

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// onFirstBind does something to the first binding of every pod.
func onFirstBind(fault controlplane.Fault) controlplane.FaultFunc {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(r *http.Request) controlplane.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !controlplane.IsBinding(r) || seen[r.URL.Path] {
			return controlplane.Fault{}
		}
		seen[r.URL.Path] = true
		return fault
	}
}

// TestLostBinds loses bindings, or what the API server answers to them. Each time two pods want one device;
// whatever the callers are told, one pod has it in the end.
func TestLostBinds(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, proxied: true})
	c.CreateDevice("only", "node-0", "K80")
	c.awaitDevice("only", v1alpha1.ExtendedResourceAvailable)
	round := 0
	for name, fault := range map[string]controlplane.Fault{
		"the answer is lost after the commit": {DropAnswer: true},
		"the request is lost":                 {DropRequest: true},
		"an internal error":                   {Refuse: http.StatusInternalServerError},
		"not allowed":                         {Refuse: http.StatusForbidden},
		"committed a second later":            {Before: time.Second, DropAnswer: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			before := c.Proxy.Faulted()
			c.Proxy.SetFault(onFirstBind(fault))
			defer c.Proxy.SetFault(nil)
			round++
			first, second := c.claimant(fmt.Sprintf("first-%d", round), ""), c.claimant(fmt.Sprintf("second-%d", round), "")
			told := []string{c.Bind(first, "node-0"), c.Bind(second, "node-0")}
			require.NotEqual(t, before, c.Proxy.Faulted(), "nothing happened to any bind")
			t.Logf("told %q", told)
			for i, pod := range []string{first.Name, second.Name} {
				if told[i] == "" {
					require.Equal(t, "GPU-only", given(c.Pod(pod)), "told that it is bound")
				}
			}
			c.Eventually(func(t *assert.CollectT) { // whoever tries again
				_ = c.Bind(first, "node-0")
				_ = c.Bind(second, "node-0")
				assert.Len(t, c.boundPods(), 1)
			})
			c.requireConsistent()
			c.Delete(first.Name, second.Name)
			c.awaitDevice("only", v1alpha1.ExtendedResourceAvailable)
		})
	}
	c.verdict.requireGood(t)
}

// TestChangesWhileDown changes everything while no server is there to see it.
func TestChangesWhileDown(t *testing.T) {
	c := newCluster(t, setup{nodes: 3})
	for i := range 6 {
		name := fmt.Sprintf("gpu-%d", i)
		c.CreateDevice(name, fmt.Sprintf("node-%d", i%3), name)
		c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
		require.Empty(t, c.Bind(c.claimant(name, name), fmt.Sprintf("node-%d", i%3)))
	}
	c.requireConsistent()
	_, err := c.Server.Stop()
	require.NoError(t, err)

	c.Delete("gpu-0") // its claim and device are free
	c.deleteClaim("gpu-1")
	c.Delete("gpu-2")
	c.deleteClaim("gpu-2")
	c.deleteDevice("gpu-3")
	c.DeleteNode("node-1") // that of 1 and 4
	for _, name := range []string{"gpu-0", "gpu-5"} {
		c.forgeStatus(name)
	}
	require.NoError(t, c.Server.Start(t.Context()))

	c.awaitClaim("gpu-0", v1alpha1.ExtendedResourceClaimPending)
	c.awaitDevice("gpu-0", v1alpha1.ExtendedResourceAvailable)
	claim := c.awaitClaim("gpu-1", v1alpha1.ExtendedResourceClaimBound)
	require.NotNil(t, claim.DeletionTimestamp, "its pod is still there")
	c.Eventually(func(t *assert.CollectT) {
		_, err := c.DeviceClaims().Get(c.T.Context(), "gpu-2", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	c.awaitDevice("gpu-2", v1alpha1.ExtendedResourceAvailable)
	c.awaitClaim("gpu-3", v1alpha1.ExtendedResourceClaimLost)
	c.awaitDevice("gpu-4", v1alpha1.ExtendedResourceOffline)
	c.awaitDevice("gpu-1", v1alpha1.ExtendedResourceOffline)
	require.Equal(t, "gpu-5", c.awaitDevice("gpu-5", v1alpha1.ExtendedResourceBound).Status.ClaimRef.Name)
	require.NotEmpty(t, c.Bind(c.claimant("gpu-5-again", "gpu-5"), "node-2"), "what the status said while it was down decides nothing")
	require.Empty(t, c.Bind(c.claimant("gpu-0-again", "gpu-0"), "node-0"))
	c.verdict.requireGood(t)
}
