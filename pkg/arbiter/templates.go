package arbiter

import (
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// answerTemplates says of nodes that do not exist here whether the pod would fit them as the caller describes them, such as
// the nodes that an autoscaler might add. Whoever describes what is not so fools nobody else: a bind to such a node is refused.
func (a *Arbiter) answerTemplates(q *PodQuery, p *ledger.Placement, verdicts []ledger.Verdict) {
	if q.Node == nil {
		return
	}
	for i := range verdicts {
		if verdicts[i].Reason != ledger.NodeUnknown {
			continue
		}
		if node := q.Node(i); node != nil {
			verdicts[i] = a.o.Ledger.FitTemplate(p, template(a.o.Ledger.Table(), node))
		}
	}
}

func template(t *resources.Table, node *v1.Node) *ledger.Template {
	return &ledger.Template{Name: node.Name, Offered: resources.Offered(t, node), Unschedulable: node.Spec.Unschedulable}
}
