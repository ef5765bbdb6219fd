package e2e

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// requireAgreement waits until the server says of every pod and node what the API server says, and
// its own comparison finds no difference. No allocation may be left that is not a bound pod.
func (c *cluster) requireAgreement() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		pods := slices.DeleteFunc(c.Pods(), func(pod corev1.Pod) bool {
			return pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		})
		want, got := map[string]string{}, map[string]string{}
		for i := range pods {
			want[string(pods[i].UID)] = pods[i].Name + " is Bound on " + pods[i].Spec.NodeName
		}
		for _, a := range c.Allocations().Allocations {
			got[a.UID] = a.Pod + " is " + a.State + " on " + a.Node
		}
		assert.Equal(t, want, got, "pods by the API server, and by the server")
		assert.Equal(t, c.amounts(t, pods), c.accounts(), "nodes by the API server, and by the server")
		assert.Zero(t, c.Metric("globalreserve_ledger_drift"))
	})
}

// amounts are what each node has of each resource by the API server, where pods are bound.
func (c *cluster) amounts(t require.TestingT, bound []corev1.Pod) map[string]reserver.NodeAmount {
	table, amounts := resources.NewTable(), map[string]reserver.NodeAmount{}
	add := func(node string, column resources.Column, offered, used int64) {
		key := node + " " + string(table.Name(column))
		a := amounts[key]
		amounts[key] = reserver.NodeAmount{
			Allocatable: a.Allocatable + offered, Bound: a.Bound + used, Free: a.Free + offered - used,
		}
	}
	list, err := c.Client().CoreV1().Nodes().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		for _, offered := range resources.Allocatable(table, &list.Items[i]) {
			add(list.Items[i].Name, offered.Column, offered.Value, 0)
		}
	}
	for i := range bound {
		for _, asked := range resources.ForBoundPod(table, &bound[i]).Amounts {
			add(bound[i].Spec.NodeName, asked.Column, 0, asked.Value)
		}
	}
	return amounts
}

// accounts are what each node has of each resource by the server.
func (c *cluster) accounts() map[string]reserver.NodeAmount {
	c.T.Helper()
	answer, err := c.Ledger.Nodes(c.T.Context())
	require.NoError(c.T, err)
	amounts := map[string]reserver.NodeAmount{}
	for _, node := range answer.Nodes {
		for resource, amount := range node.Resources {
			if amount != (reserver.NodeAmount{}) {
				amounts[node.Name+" "+resource] = amount
			}
		}
	}
	return amounts
}

// driftFound counts what the server's comparisons have found since it started.
const driftFound = "globalreserve_ledger_drift_found_total"

// requireNoDriftSeen fails if the server's comparison has found a difference since the server started.
func (c *cluster) requireNoDriftSeen() {
	c.T.Helper()
	var metrics testbed.Families
	c.Eventually(func(t *assert.CollectT) {
		metrics = c.Scrape()
		assert.Contains(t, metrics, driftFound, "nothing was compared yet")
	})
	require.Zero(c.T, metrics.Sum(driftFound), "the ledger differed from the cluster: %s",
		testbed.Tail(c.Server.LogFile(), 20))
}
