package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// filter asks as the protocol does.
func (c *cluster) filter(args *extenderv1.ExtenderArgs) (answer extenderv1.ExtenderFilterResult) {
	c.T.Helper()
	require.NoError(c.T, c.Ledger.Post(c.T.Context(), testbed.FilterPath, args, &answer))
	return answer
}

// TestFilterForms asks the same question with node names and with whole nodes.
func TestFilterForms(t *testing.T) {
	c := newServedCluster(t, 3)
	full := c.CreatePod("full", nobody, "4")
	require.Empty(t, c.Bind(full, "node-1"))
	asking := c.CreatePod("asking", nobody, "1")
	names := []string{"node-0", "node-1", "node-2", "no-such-node"}

	byName := c.filter(&extenderv1.ExtenderArgs{Pod: asking, NodeNames: &names})
	require.Empty(t, byName.Error)
	require.Nil(t, byName.Nodes)
	require.ElementsMatch(t, []string{"node-0", "node-2"}, *byName.NodeNames)
	require.Len(t, byName.FailedNodes, 1)
	require.Len(t, byName.FailedAndUnresolvableNodes, 1)

	list, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	stranger := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-such-node"}}
	list.Items = append(list.Items, stranger)
	byNode := c.filter(&extenderv1.ExtenderArgs{Pod: asking, Nodes: list})
	require.Empty(t, byNode.Error)
	require.Nil(t, byNode.NodeNames)
	require.Equal(t, byName.FailedNodes, byNode.FailedNodes)
	require.Equal(t, byName.FailedAndUnresolvableNodes, byNode.FailedAndUnresolvableNodes)
	require.Len(t, byNode.Nodes.Items, 2)
	for i := range byNode.Nodes.Items {
		node := &byNode.Nodes.Items[i]
		sent := slices.IndexFunc(list.Items, func(n corev1.Node) bool { return n.Name == node.Name })
		require.Equal(t, list.Items[sent].Status.Allocatable.Cpu().MilliValue(), node.Status.Allocatable.Cpu().MilliValue(),
			"the nodes come back whole")
	}
}

// TestRefusalsAreConstant checks that what filter says of a node does not change with amounts and
// names: kube-scheduler copies it into the pod's condition, and a change there makes it try again.
func TestRefusalsAreConstant(t *testing.T) {
	c := newServedCluster(t, 2)
	texts := map[string]bool{}
	for _, cpu := range []string{"5", "6", "100"} {
		pod := c.CreatePod("asks-"+cpu, nobody, cpu)
		for _, text := range c.Filter(pod, "node-0", "node-1") {
			texts[text] = true
		}
	}
	require.Len(t, texts, 1, "%v", texts)
	refusal := c.AwaitRefusal("path=filter&pod=asks-5")
	require.Equal(t, map[string]int{"InsufficientResource": 2}, refusal.Reasons, "what it does not say is told here")
	require.Equal(t, []any{int64(5000), int64(4000)}, []any{refusal.Rejection.Requested, refusal.Rejection.Free})
}

// TestBindRefusals asks for binds that must not happen.
func TestBindRefusals(t *testing.T) {
	c := newServedCluster(t, 3)
	taken := c.CreatePod("taken", nobody, "3")
	require.Empty(t, c.Bind(taken, "node-0"))
	tests := map[string]func(c *cluster) (pod *corev1.Pod, node, says string){
		"the node is full": func(c *cluster) (*corev1.Pod, string, string) {
			return c.CreatePod("too-large", nobody, "2"), "node-0", "cpu"
		},
		"the node does not exist": func(c *cluster) (*corev1.Pod, string, string) {
			return c.CreatePod("nowhere", nobody, "1"), "no-such-node", "no-such-node"
		},
		"the pod has another UID": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("reborn", nobody, "1")
			pod.UID = "00000000-0000-0000-0000-000000000000"
			return pod, "node-1", "UID"
		},
		"the pod was deleted": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("deleted", nobody, "1")
			c.Delete(pod.Name)
			return pod, "node-1", "deleted"
		},
		"the pod was deleted and created again": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("again", nobody, "1")
			c.Delete(pod.Name)
			c.Create(testbed.NewPod("again", nobody, "1"))
			return pod, "node-1", "again"
		},
		"the pod is elsewhere already": func(*cluster) (*corev1.Pod, string, string) {
			return taken, "node-1", "node-0"
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			pod, node, says := test(c)
			before := c.Metric("globalreserve_decisions_total", "verb", "bind")
			require.Contains(t, c.Bind(pod, node), says)
			require.Greater(t, c.Metric("globalreserve_decisions_total", "verb", "bind"), before)
			c.requireAgreement()
		})
	}
	require.Equal(t, "taken", c.AwaitRefusal("path=bind&pod=too-large").Rejection.Holders[0].Pod)
	require.NotEmpty(t, c.Reserve(gangOf([]*corev1.Pod{c.CreatePod("one-more", nobody, "2")}, "node-0")).Error)
	require.Equal(t, "taken", c.AwaitRefusal("path=reserve&pod=one-more").Rejection.Holders[0].Pod)
	require.Empty(t, c.Bind(taken, "node-0"), "the same bind again is a success")
	c.RequireNeverOvercommitted()
}

// TestCordonedNode keeps new pods off a node that is cordoned, and what is there on it.
func TestCordonedNode(t *testing.T) {
	c := newServedCluster(t, 1)
	c.AddNodes(1, controlplane.NodeTemplate{Prefix: "other-"})
	there := c.CreatePod("there", nobody, "1")
	require.Empty(t, c.Bind(there, "node-0"))
	c.ChangeNode("node-0", func(node *corev1.Node) { node.Spec.Unschedulable = true })
	late := c.CreatePod("late", nobody, "1")
	c.Eventually(func(t *assert.CollectT) {
		reasons := c.Filter(late, "node-0", "other-0")
		assert.Contains(t, reasons, "node-0", "filter still offers the cordoned node")
		assert.NotContains(t, reasons, "other-0")
	})
	require.NotEmpty(t, c.Reserve(gangOf([]*corev1.Pod{late}, "node-0")).Error)
	require.Empty(t, c.Bind(late, "other-0"))
	c.requireAgreement()
}
