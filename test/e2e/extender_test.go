package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// TestFilterForms asks the same question with node names and with whole nodes.
func TestFilterForms(t *testing.T) {
	c := newServedCluster(t, 3)
	full := c.create(newPod("full", nobody, "4"))[0]
	require.Empty(t, c.bind(t, full, "node-1"))
	asking := c.create(newPod("asking", nobody, "1"))[0]
	names := []string{"node-0", "node-1", "node-2", "no-such-node"}

	byName := c.filter(t, &extenderv1.ExtenderArgs{Pod: asking, NodeNames: &names})
	require.Empty(t, byName.Error)
	require.Nil(t, byName.Nodes)
	require.ElementsMatch(t, []string{"node-0", "node-2"}, *byName.NodeNames)
	require.Len(t, byName.FailedNodes, 1)
	require.Len(t, byName.FailedAndUnresolvableNodes, 1)

	list, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	stranger := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-such-node"}}
	list.Items = append(list.Items, stranger)
	byNode := c.filter(t, &extenderv1.ExtenderArgs{Pod: asking, Nodes: list})
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
	names := []string{"node-0", "node-1"}
	texts := map[string]bool{}
	for _, cpu := range []string{"5", "6", "100"} {
		pod := c.create(newPod("asks-"+cpu, nobody, cpu))[0]
		for _, text := range c.filter(t, &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}).FailedNodes {
			texts[text] = true
		}
	}
	require.Len(t, texts, 1, "%v", texts)
}

// TestBindRefusals asks for binds that must not happen.
func TestBindRefusals(t *testing.T) {
	c := newServedCluster(t, 3)
	taken := c.create(newPod("taken", nobody, "3"))[0]
	require.Empty(t, c.bind(t, taken, "node-0"))
	tests := map[string]func(c *cluster) (pod *corev1.Pod, node, says string){
		"the node is full": func(c *cluster) (*corev1.Pod, string, string) {
			return c.create(newPod("too-large", nobody, "2"))[0], "node-0", "cpu"
		},
		"the node does not exist": func(c *cluster) (*corev1.Pod, string, string) {
			return c.create(newPod("nowhere", nobody, "1"))[0], "no-such-node", "no-such-node"
		},
		"the pod has another UID": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.create(newPod("reborn", nobody, "1"))[0]
			pod.UID = "00000000-0000-0000-0000-000000000000"
			return pod, "node-1", "UID"
		},
		"the pod was deleted": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.create(newPod("deleted", nobody, "1"))[0]
			c.delete(pod)
			return pod, "node-1", "deleted"
		},
		"the pod was deleted and created again": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.create(newPod("again", nobody, "1"))[0]
			c.delete(pod)
			c.create(newPod("again", nobody, "1"))
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
			before := c.metric(t, "globalreserve_decisions_total", "verb", "bind")
			require.Contains(t, c.bind(t, pod, node), says)
			require.Greater(t, c.metric(t, "globalreserve_decisions_total", "verb", "bind"), before)
			c.requireAgreement()
		})
	}
	require.Empty(t, c.bind(t, taken, "node-0"), "the same bind again is a success")
	c.requireNeverOvercommitted()
}

// TestCordonedNode keeps new pods off a node that is cordoned, and what is there on it.
func TestCordonedNode(t *testing.T) {
	c := newServedCluster(t, 1)
	c.addNodes(1, controlplane.NodeTemplate{Prefix: "other-"})
	there := c.create(newPod("there", nobody, "1"))[0]
	require.Empty(t, c.bind(t, there, "node-0"))
	node, err := c.Client().CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
	require.NoError(t, err)
	node.Spec.Unschedulable = true
	_, err = c.Client().CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	late := c.create(newPod("late", nobody, "1"))[0]
	names := []string{"node-0", "other-0"}
	require.Eventually(t, func() bool {
		var answer extenderv1.ExtenderFilterResult
		err := c.ask(http.MethodPost, "/filter", &extenderv1.ExtenderArgs{Pod: late, NodeNames: &names}, &answer)
		return err == nil && slices.Equal(*answer.NodeNames, []string{"other-0"})
	}, soon, poll, "filter still offers the cordoned node")
	require.NotEmpty(t, c.reserve(t, groupOf([]*corev1.Pod{late}, "node-0")).Error)
	require.Empty(t, c.bind(t, late, "other-0"))
	c.requireAgreement()
}
