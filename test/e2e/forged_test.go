package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// TestForgedRequests asks, in the names of real pods, for less than they request, at a version that
// the API server has not come to: what a request says of a pod must not decide what it is bound for.
func TestForgedRequests(t *testing.T) {
	c := newServedCluster(t, 1)
	names := []string{"node-0"}
	bound := 0
	for _, name := range []string{"first", "second"} {
		pod := c.create(newPod(name, nobody, "3"))[0]
		forged := pod.DeepCopy()
		forged.ResourceVersion = "999999999"
		forged.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m")
		answer := c.filter(t, &extenderv1.ExtenderArgs{Pod: forged, NodeNames: &names})
		require.Empty(t, answer.Error)
		require.Len(t, *answer.NodeNames, 1-bound, "filter counts what the pod requests, not what the copy says")
		if c.bind(t, forged, "node-0") == "" {
			bound++
		}
	}
	require.Equal(t, 1, bound, "the node has capacity for one of the pods")
	c.requireAgreement()
	c.requireNeverOvercommitted()
}
