//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestObserve overcommits a node behind a server that only observes, through it and past it. Each time it says which
// pod came too late and who had the capacity.
func TestObserve(t *testing.T) {
	c := newCluster(t, 1)
	leads := c.lease()
	c.StartServer(clusterload.ServerOptions{Args: []string{"--observe"}})
	c.StartKubeScheduler("default-scheduler-observed", "default-scheduler.yaml")
	c.CreatePod("first", "default-scheduler", "3")
	c.AwaitBound("first")
	second := c.CreatePod("second", nobody, "3")
	require.Empty(t, c.Bind(second, "node-0"), "it refuses nothing")
	third := c.CreatePod("third", nobody, "3")
	require.NoError(t, c.BindDirectly(third.Name, "node-0"))
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, 2, c.Metric("globalreserve_observed_conflicts_total"))
		assert.Equal(t, 1, c.Metric("globalreserve_observing"))
	})
	c.CatchUp()
	require.NotEmpty(t, c.Watcher.Violations(), "the API server shows it too")
	c.requireAgreement()
	c.requireConflictsNamed()

	t.Run("it keeps nothing for anybody", func(t *testing.T) {
		c := c.in(t)
		pod := c.CreatePod("asking", nobody, "100m")
		answer := c.Reserve(gangOf([]*corev1.Pod{pod}, "node-0"))
		assert.Contains(t, answer.Error, "only observes")
		assert.Equal(t, []string{"asking"}, answer.FailedPods)
	})
	t.Run("it leads nothing, and says what it is", func(t *testing.T) {
		c := c.in(t)
		assert.Equal(t, leads, c.lease(), "the Lease is as it was before")
		response, err := http.Get(c.Ledger.URL + "/readyz")
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, response.StatusCode)
		assert.Contains(t, string(text), "only observes")
	})
}

// lease is the version of the Lease of who decides, "" where there is none.
func (c *cluster) lease() string {
	c.T.Helper()
	lease, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).
		Get(c.T.Context(), election.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(c.T, err)
	return lease.ResourceVersion
}

// requireConflictsNamed has each node that has too much be one of a conflict that the server has seen, with the pod and
// those who had the capacity, and all conflicts be such.
func (c *cluster) requireConflictsNamed() {
	c.T.Helper()
	pods := map[string]string{}
	for _, pod := range c.Pods() {
		pods[pod.Name] = pod.Spec.NodeName
	}
	var answer reserver.RefusalsAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), "/v1/refusals", &answer))
	named := map[string]int{}
	for i := range answer.Refusals {
		r := &answer.Refusals[i]
		require.True(c.T, r.Observed, "%+v", r)
		require.NotEmpty(c.T, r.Rejection.Holders, "%+v", r)
		require.Equal(c.T, pods[r.Rejection.Pod], r.Rejection.Node, "it has got the node: %+v", r)
		for _, h := range r.Rejection.Holders {
			require.Equal(c.T, r.Rejection.Node, pods[h.Pod], "%+v", r)
		}
		named[r.Rejection.Node]++
	}
	var overcommitted reserver.NodesAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), testbed.NodesPath+"?overcommitted=true", &overcommitted))
	require.NotEmpty(c.T, overcommitted.Nodes)
	for _, node := range overcommitted.Nodes {
		require.Positive(c.T, named[node.Name], "nobody tells how %s came to have too much", node.Name)
	}
	for _, v := range c.Watcher.Violations() {
		require.Positive(c.T, named[v.Node], v.String())
	}
	require.Len(c.T, answer.Refusals, c.Metric("globalreserve_observed_conflicts_total"))
}
