package decide

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A mutating webhook may change the node of a Binding, and the pod is bound there. So a pod with capacity of its own
// need not be refused because its scheduler does not know where that is. Most schedulers go by copies of the cluster in
// which the capacity that is kept on other nodes is free: such a scheduler would try one node after another.

// Where a bind may be redirected to, unless that is one node.
const (
	nowhere   = ""
	whereKept = "*" // where capacity is kept for its pod alone
)

// mayGoHome reports whether the Binding of a pod with anti-affinity, which was refused, may be redirected to where
// capacity is kept for it now, as no pod there is one that it must not be with.
func (a *Arbiter) mayGoHome(ctx context.Context, k *admission) bool {
	home, kept := a.o.Ledger.PlaceOf(k.pod.Ref)
	if k.own || k.create || !k.pod.HasClashes() || !kept || home == k.node || !k.pod.Constraints.NodesDecide() ||
		!a.gangs.mayRedirect(k.pod) {
		return false
	}
	if err := a.clashes(ctx, k.pod, home); err != nil {
		a.gangs.clashed(k.pod, home, err)
		return false
	}
	k.to = home
	return true
}

// clashes returns an error where there is a pod on a node that another one must not be with by its own anti-affinity,
// or where that is not known. The labels of pods with a node are not kept, so they are read live. The rule is that of
// kube-scheduler's satisfyPodAntiAffinity.
func (a *Arbiter) clashes(ctx context.Context, pod *cluster.Pod, node string) error {
	known, ok := a.o.Nodes.Node(node)
	if ok {
		_, ok = known.Labels[v1.LabelHostname]
	}
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout(a.o.BindTimeout))
	defer cancel()
	for namespace, selector := range pod.Clashes() {
		is, err := a.o.API.IsOn(ctx, namespace, node, selector)
		if err == nil && !is {
			continue
		}
		e := &gates.Error{Outcome: gates.Failed, Pod: pod.Ref, Node: node, Cause: err}
		if is {
			e.Outcome, e.Rejection = gates.Refused, &ledger.Rejection{
				Pod: pod.Ref, Node: node, Reason: ledger.AntiAffinity,
				Resource: cmp.Or(namespace, "*") + "/" + selector.String(),
			}
		}
		return e
	}
	return nil
}

// bindHome starts the bind of a pod that was refused a node, on the node where capacity is kept for it alone, and makes
// slots for the rest of its gang in the same step. p is for that node then. It reports false where that may not be, or
// is impossible. g.mu is held for a member of a gang.
func (g *gangKeeper) bindHome(pod *cluster.Pod, p *ledger.Placement, rest []*cluster.Pod, to string, refused error) (
	grant ledger.Grant, ok bool,
) {
	if to == nowhere || !reasonOf(refused).OfCapacity() {
		return grant, false
	}
	home, has := g.o.Ledger.PlaceOf(pod.Ref)
	if !has || home == p.Node || to != whereKept && to != home || !g.mayRedirect(pod) || !g.mayBeOn(pod, home) {
		return grant, false
	}
	there := g.o.Question.For(pod.WithCaller(p.Caller), home)
	there.NoDRA = p.NoDRA
	if !g.usesOwn(&there) {
		return grant, false
	}
	grant, err := g.exchange(&there, nil, rest, nil)
	if err != nil {
		return grant, false
	}
	*p = there
	return grant, true
}

// usesOwn reports whether a pod would be bound with what is kept for it, and not beside that with what is free.
func (g *gangKeeper) usesOwn(p *ledger.Placement) (uses bool) {
	if _, inMemory := g.o.Ledger.HomeOf(p.Pod); inMemory {
		return true
	}
	g.o.Ledger.Try(func(t *ledger.Trial) {
		uses = fitsAny(t.AppendFit(nil, p, []string{p.Node})) && t.Grant(p).Slot != ledger.SlotRef{}
	})
	return uses
}

// mayBeOn reports whether a scheduler would take a node for a pod, if it has the capacity; false where the server
// cannot know.
func (g *gangKeeper) mayBeOn(pod *cluster.Pod, name string) bool {
	node, known := g.o.Nodes.Node(name)
	return known && pod.Constraints.NodesDecide() && g.suits(pod)(name) &&
		(!node.Unschedulable || pod.Request.ToleratesUnschedulable) && // the ledger lets a pod have what is kept there
		!slices.ContainsFunc(g.o.Ledger.PodsOn(name), func(ref ledger.PodRef) bool {
			other, ok := g.o.Pods.Pod(ref.Namespace, ref.Name) // the watch may not have brought it bound yet
			return ok && ref != pod.Ref && other.Node == "" && other.IsApartFrom(pod, node)
		})
}

// clashed takes note of a node that was refused because of a pod which a member of a gang must not be with. What is
// kept there for the member is of no use to it, and the node is left out when capacity is looked for the next time.
func (g *gangKeeper) clashed(pod *cluster.Pod, node string, refused error) {
	if pod.Gang == nil || reasonOf(refused) != ledger.AntiAffinity {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.of[pod.Gang.Key(pod.Ref.Namespace)]
	if s == nil {
		return
	}
	if s.closed == nil {
		s.closed = map[string]bool{}
	}
	s.closed[node] = true
	if s.kept[pod.Ref] != nil && g.isKeptOn(pod.Ref, node) {
		delete(s.kept, pod.Ref)
		g.end([]ledger.PodRef{pod.Ref})
	}
}

// mayRedirect reports whether the policy lets a Binding of a pod be redirected. Where refusals are only warnings
// nothing is changed.
func (g *gangKeeper) mayRedirect(pod *cluster.Pod) bool {
	rule := cmp.Or(g.o.Gangs.Redirect(pod), g.o.Policy.Current().Gangs.Redirect)
	return rule == kinds.RedirectWhenRefused && !g.o.AdmissionWarns
}

// redirected reports a Binding that goes to another node than its sender named.
func (a *Arbiter) redirected(pod *cluster.Pod, from, to string) {
	a.o.Metrics.ObserveRedirect(pod.Scheduler)
	a.o.RedirectEvents.Tell(informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID), v1.EventTypeNormal,
		"BindingRedirected", "Bind", fmt.Sprintf("it was to be bound to node %q, which has no capacity for it, and is bound "+
			"to node %q, where capacity is kept for it", from, to))
}
