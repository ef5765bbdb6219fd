package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// answerTemplates says whether the pod would fit nodes that do not exist here, such as nodes that an autoscaler might
// add, going by the caller's description of them. A wrong description misleads nobody but the caller: a bind to such a
// node is refused.
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
