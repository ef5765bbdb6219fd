package e2e

import (
	"fmt"
	"maps"
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
		pods := c.Pods()
		differences := append(c.allocationDifferences(t, pods), c.nodeDifferences(t, pods)...)
		assert.Empty(t, differences, "the server and the API server differ")
		assert.Zero(t, c.Metric("globalreserve_ledger_drift"))
	})
}

func isCounted(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// allocationDifferences compares the allocations with the pods that are bound.
func (c *cluster) allocationDifferences(t require.TestingT, pods []corev1.Pod) []string {
	allocations := map[string]reserver.Allocation{}
	for _, allocation := range c.Allocations().Allocations {
		allocations[allocation.UID] = allocation
	}
	var differences []string
	for i := range pods {
		pod := &pods[i]
		if !isCounted(pod) {
			continue
		}
		allocation, known := allocations[string(pod.UID)]
		delete(allocations, string(pod.UID))
		if !known || allocation.Node != pod.Spec.NodeName || allocation.State != "Bound" {
			differences = append(differences, fmt.Sprintf("%s is on %s, its allocation is %+v", pod.Name, pod.Spec.NodeName,
				allocation))
		}
	}
	for _, allocation := range allocations {
		differences = append(differences, fmt.Sprintf("allocation without a bound pod: %+v", allocation))
	}
	return differences
}

// nodeDifferences compares what is bound to each node.
func (c *cluster) nodeDifferences(t require.TestingT, pods []corev1.Pod) []string {
	table := resources.NewTable()
	used := map[string]map[string]int64{}
	for i := range pods {
		if !isCounted(&pods[i]) {
			continue
		}
		node := pods[i].Spec.NodeName
		if used[node] == nil {
			used[node] = map[string]int64{}
		}
		for _, asked := range resources.ForBoundPod(table, &pods[i]).Amounts {
			used[node][string(table.Name(asked.Column))] += asked.Value
		}
	}
	list, err := c.Client().CoreV1().Nodes().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	accounts := map[string]reserver.Node{}
	for _, node := range c.nodes() {
		accounts[node.Name] = node
	}
	var differences []string
	for i := range list.Items {
		node := &list.Items[i]
		account, known := accounts[node.Name]
		delete(accounts, node.Name)
		if !known {
			differences = append(differences, "node unknown to the server: "+node.Name)
			continue
		}
		differences = append(differences, compareNode(&account, offers(table, node), used[node.Name])...)
	}
	for name := range accounts {
		differences = append(differences, "node unknown to the API server: "+name)
	}
	return differences
}

func offers(table *resources.Table, node *corev1.Node) map[string]int64 {
	amounts := map[string]int64{}
	for _, offered := range resources.Allocatable(table, node) {
		amounts[string(table.Name(offered.Column))] = offered.Value
	}
	return amounts
}

func compareNode(account *reserver.Node, offered, used map[string]int64) []string {
	names := slices.Sorted(maps.Keys(offered))
	for name := range used {
		if _, known := offered[name]; !known {
			names = append(names, name)
		}
	}
	var differences []string
	for _, name := range names {
		got := account.Resources[name]
		want := reserver.NodeAmount{Allocatable: offered[name], Bound: used[name], Free: offered[name] - used[name]}
		if got != want {
			differences = append(differences, fmt.Sprintf("%s of %s: %+v, by the API server %+v", name, account.Name, got, want))
		}
	}
	return differences
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
