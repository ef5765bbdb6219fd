package arbiter

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A mutating webhook may change the node of a Binding, and the pod is bound there. So a pod with capacity of its own
// need not be refused because its scheduler does not know where that is. Most schedulers go by copies of the cluster in
// which the capacity that is kept on other nodes is free: such a scheduler would try one node after another.

// bindHome starts the bind of a pod that was refused a node, on the node where capacity is kept for it alone, and makes
// slots for the rest of its gang in the same step. p is for that node then. It reports false where that may not be, or
// is impossible. g.mu is held for a member of a gang.
func (g *ganging) bindHome(pod *cluster.Pod, p *ledger.Placement, rest []*cluster.Pod, refused error) (
	grant ledger.Grant, ok bool,
) {
	home, has := g.o.Ledger.PlaceOf(pod.Ref)
	if !has || home == p.Node || !isLack(refused) || !g.mayRedirect(pod) || !g.mayBeOn(pod, home) {
		return grant, false
	}
	there := g.o.Question.For(pod.WithCaller(p.Caller), home)
	there.NoDRA = p.NoDRA
	if !g.usesOwn(&there) {
		return grant, false
	}
	grant, err := g.start(&there, rest)
	if err != nil {
		return grant, false
	}
	*p = there
	return grant, true
}

// usesOwn reports whether a pod would be bound with what is kept for it, and not beside that with what is free.
func (g *ganging) usesOwn(p *ledger.Placement) (uses bool) {
	if _, inMemory := g.o.Ledger.HomeOf(p.Pod); inMemory {
		return true
	}
	g.o.Ledger.Try(func(t *ledger.Trial) {
		uses = fitsAny(t.AppendFit(nil, p, []string{p.Node})) && t.Grant(p).Slot != ledger.SlotRef{}
	})
	return uses
}

// mayBeOn reports whether a scheduler would take a node for a pod, if it has the capacity; false where the server
// cannot tell.
func (g *ganging) mayBeOn(pod *cluster.Pod, name string) bool {
	node, ok := g.o.Nodes.Node(name)
	return ok && pod.Constraints.NodesDecide() && pod.Constraints.Accepts()(node) &&
		!g.o.Pods.Repelled(pod, node, g.o.Nodes)
}

// mayRedirect reports whether the policy lets a Binding of a pod be redirected. Where refusals are only warnings
// nothing is changed.
func (g *ganging) mayRedirect(pod *cluster.Pod) bool {
	rule := cmp.Or(g.o.Gangs.Redirect(pod), g.o.Policy.Current().Gangs.Redirect)
	return rule == kinds.RedirectWhenRefused && !g.o.AdmissionWarns
}

// redirected tells of a Binding that goes to another node than its sender named.
func (a *Arbiter) redirected(pod *cluster.Pod, from, to string) {
	a.o.Metrics.ObserveRedirect(pod.Scheduler)
	a.o.RedirectEvents.Tell(follow.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID), v1.EventTypeNormal,
		"BindingRedirected", "Bind", fmt.Sprintf("it was to be bound to node %q, which has no capacity for it, and is bound "+
			"to node %q, where capacity is kept for it", from, to))
}
