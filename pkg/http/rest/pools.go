package rest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// maxNodes is how many nodes one answer has at most.
const maxNodes = 5_000

// poolLabels are the labels that may name a node's pool. The first that a node has counts. Karpenter's comes first,
// because Karpenter also makes nodes where the provider has pools of its own. The type of machine is the last resort.
var poolLabels = []string{
	"karpenter.sh/nodepool",
	"cloud.google.com/gke-nodepool",
	"eks.amazonaws.com/nodegroup",
	"kubernetes.azure.com/agentpool",
	"agentpool", // of AKS, before that
	v1.LabelInstanceTypeStable,
}

// poolOf returns the pool of a node, "" where its labels name none.
func poolOf(of map[string]string) string {
	for _, label := range poolLabels {
		if pool := of[label]; pool != "" {
			return pool
		}
	}
	return ""
}

// nodeFilter returns a function that says whether ?pool= and ?labelSelector= ask for a node.
func (q *query) nodeFilter() (func(*ledger.NodeView) bool, error) {
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil,
			badRequest("labelSelector \"%s\" cannot be read: %s: write it as for kubectl get nodes -l, such as pool=a,zone!=b",
				httpjson.Clip(q.Get("labelSelector")), err)
	}
	return func(n *ledger.NodeView) bool {
		return selector.Matches(labels.Set(n.Labels)) && (q.Get("pool") == "" || poolOf(n.Labels) == q.Get("pool"))
	}, nil
}
