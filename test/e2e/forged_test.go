//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestForgedRequests asks, in the names of real pods, for less than they request, at a version that
// the API server has not come to: what a request says of a pod must not decide what it is bound for.
func TestForgedRequests(t *testing.T) {
	c := newServedCluster(t, 1)
	bound := 0
	for _, name := range []string{"first", "second"} {
		pod := c.CreatePod(name, nobody, "3")
		forged := pod.DeepCopy()
		forged.ResourceVersion = "999999999"
		forged.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m")
		require.Len(t, c.Filter(forged, "node-0"), bound, "filter counts what the pod requests, not what the copy says")
		if c.Bind(forged, "node-0") == "" {
			bound++
		}
	}
	require.Equal(t, 1, bound, "the node has capacity for one of the pods")
	c.requireAgreement()
	c.RequireNeverOvercommitted()
}
