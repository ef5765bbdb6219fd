package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const explainExamples = 5 // node names listed per group of refusals

// Explanation says why a pod is pending, or where it is. Its answer lacks the Requests, the Reservation and the
// Holders, which follow from the other fields.
type Explanation struct {
	reserver.ExplainAnswer

	Request *resources.Request
	// Slot is what the pod uses, or may use.
	Slot ledger.SlotRef
	// Holders are those on the closest node.
	Holders []ledger.Holder
}

// newExplanation begins to explain a pod.
func (a *Arbiter) newExplanation(pod ledger.PodRef, scheduler, state, node, message string) *Explanation {
	return &Explanation{ExplainAnswer: reserver.ExplainAnswer{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Scheduler: scheduler, State: state, Node: node,
		Revision: a.o.Ledger.Revision(), Message: message,
	}}
}

// Explain says where a pod is, or why it is nowhere. It returns nil for a pod that is not known.
func (a *Arbiter) Explain(ref ledger.PodRef) *Explanation {
	info, _ := a.o.Pods.Pod(ref.Namespace, ref.Name)
	if info != nil {
		ref = info.Ref
	}
	return a.explainWith(ref, info)
}

// explainWith is Explain for a pod, with what is known of it in info, or nil.
func (a *Arbiter) explainWith(ref ledger.PodRef, info *cluster.Pod) *Explanation {
	e := a.explain(ref, info)
	if e != nil && info != nil && info.Gang != nil {
		e.ofGang(a.gangs.viewOf(info))
	}
	if e != nil && info != nil && info.Node == "" {
		e.ofResourceClaims(a.o.ResourceClaims.HeldFor(info.Ref.Namespace, info.Ref.UID))
	}
	return e
}

// ofResourceClaims adds which DRA devices a pod without a node has, so that others cannot have them.
func (e *Explanation) ofResourceClaims(held []dra.Held) {
	for i := range held {
		h := &held[i]
		devices := make([]string, len(h.Devices))
		for k := range h.Devices {
			devices[k] = h.Devices[k].String()
		}
		e.Message += fmt.Sprintf("; its ResourceClaim %s/%s has had %s for %s, though the pod is not bound: "+
			"they go back when its scheduler takes them back, or the pod is deleted", h.Namespace, h.Name,
			strings.Join(devices, ", "), h.For.Round(time.Second))
	}
}

// ofGang adds what is known of the pod's gang, if there is one. Where the gang waits, the pod waits for what the gang
// waits for.
func (e *Explanation) ofGang(gang *reserver.Gang) {
	e.Gang = gang
	if gang == nil || e.State != statePending {
		return
	}
	switch {
	case gang.State == GangStarting, gang.State == GangShort:
		e.Message += fmt.Sprintf("; of its gang, %d of the %d pods it needs have a node", gang.Bound+gang.Finished,
			gang.Minimum)
	case gang.State == GangWaiting && gang.WaitingSince.IsZero():
		e.Message += fmt.Sprintf("; its gang needs capacity for %d pods, and %s", gang.Minimum, gang.Why)
	case gang.State != GangWhole && gang.Why != "":
		e.Message = gang.Why
	}
}

func (a *Arbiter) explain(ref ledger.PodRef, info *cluster.Pod) *Explanation {
	allocation, allocated := a.o.Ledger.Allocation(ref)
	slot, inMemory := a.o.Ledger.InMemory(ref)
	kept, held := a.o.Ledger.SlotFor(ref)
	switch {
	case allocated:
		return a.explainAllocation(&allocation).deleting(info)
	case inMemory:
		return a.explainSlot(slot.Pod, &slot).movable(&slot, info).deleting(info)
	case held && (info == nil || !info.Finished && !info.Deleting):
		return a.explainSlot(ref, &kept)
	case info != nil:
		return a.explainPod(info)
	default:
		return nil
	}
}

// explainAllocation says where the capacity of a pod is by its allocation.
func (a *Arbiter) explainAllocation(view *ledger.AllocationView) *Explanation {
	e := a.newExplanation(view.Pod, view.Scheduler, view.State.String(), view.Node, boundTo(view.Node))
	e.Request, e.Slot = view.Request, view.Slot
	if view.State == ledger.Binding {
		e.Message = fmt.Sprintf("the pod is being bound to node %q", view.Node)
	}
	return e
}

// deleting adds that the pod is being deleted, where that is so.
func (e *Explanation) deleting(info *cluster.Pod) *Explanation {
	if info != nil && info.Deleting {
		e.State = "Deleting"
		e.Message += "; it is being deleted and uses its capacity until it is gone"
	}
	return e
}

func boundTo(node string) string { return fmt.Sprintf("the pod is bound to node %q", node) }

// explainSlot says where a slot is kept for a pod that has not taken it yet.
func (a *Arbiter) explainSlot(pod ledger.PodRef, view *ledger.SlotView) *Explanation {
	e := a.newExplanation(pod, view.Scheduler, ledger.NoAllocation.OrReserved(), view.Node, fmt.Sprintf(
		"reservation %s keeps capacity for the pod on node %q; it is not bound yet", view.Ref, view.Node))
	e.ExpiresAt = a.o.Ledger.Clock.WallAt(view.Deadline).UTC()
	e.Request, e.Slot = view.Request, view.Ref
	if view.InMemory() {
		e.Slot = view.Within
		e.Message = fmt.Sprintf("capacity for the pod is reserved on node %q by scheduler %q, which has not bound it yet",
			view.Node, view.Scheduler)
	}
	return e
}

// movable adds that a slot is kept for a gang, and does not keep its pod from other nodes.
func (e *Explanation) movable(view *ledger.SlotView, info *cluster.Pod) *Explanation {
	if view.Movable && info != nil && info.Gang != nil {
		e.Message = fmt.Sprintf("capacity is kept for the pod on node %q as a member of %s, of which others are bound; it "+
			"may be bound elsewhere, too, "+
			"where there is capacity", view.Node, info.Gang.Key(info.Ref.Namespace))
	}
	return e
}

// statePending is the state of a pod that has no capacity.
const statePending = "Pending"

// explainPod says why a pod without an allocation has no node.
func (a *Arbiter) explainPod(info *cluster.Pod) *Explanation {
	e := a.newExplanation(info.Ref, info.Scheduler, statePending, info.Node, "")
	e.Request = info.Request
	switch {
	case info.Finished:
		e.State, e.Message = "Finished", "the pod has finished and uses no capacity any more"
	case info.Deleting:
		e.State, e.Message = "Deleting", "the pod is being deleted and must not be scheduled any more"
	case info.Bound():
		e.State, e.Message = ledger.Bound.String(), boundTo(info.Node)
	default:
		a.explainPending(e, a.o.Question.For(info.WithCaller(a.o.Waiting.LastCaller(info.Ref.UID)), ""))
	}
	return e
}

func (a *Arbiter) explainPending(e *Explanation, pod ledger.Placement) {
	const notTried = "its scheduler has not tried %s since, " +
		"or something else keeps it off (node selector, affinity, taints, volumes, a scheduling gate)"
	if err := a.o.Ledger.Refuse(&pod); err != nil {
		e.NodeCount, e.Message = a.o.Ledger.Stats().Nodes, err.Error()
		e.Refusals = []reserver.RefusalGroup{{Reason: gates.Reason, Nodes: e.NodeCount}}
		return
	}
	kept := a.keptFor(&pod)
	a.groupVerdicts(e, &pod, kept)
	switch {
	case e.NodeCount == 0:
		e.Message = "there are no nodes in the ledger"
		return
	case len(kept) > 0:
		e.Slot = kept[0].Ref
		e.Message = fmt.Sprintf("reservation %s keeps capacity that the pod may use on node %q: "+notTried, e.Slot,
			kept[0].Node, "that node")
		return
	case e.FitCount > 0:
		e.Message = fmt.Sprintf("there is capacity for the pod on %d of %d nodes: "+notTried, e.FitCount, e.NodeCount, "them")
		return
	}
	if over := a.o.Ledger.OverLimit(&pod); over != nil {
		e.Message = over.Message()
		return
	}
	e.Message = fmt.Sprintf("there is no capacity for the pod on any of %d nodes", e.NodeCount)
	if said := a.o.Ledger.Nearest(&pod, a.o.Ledger.NodeNames()); said != nil { // else there is capacity by now
		e.Closest = &reserver.ClosestNode{Node: said.Node, Missing: a.missing(&pod, said.Node), Message: said.Message()}
		e.Holders, e.Message = said.Holders, e.Message+"; on the closest, "+e.Closest.Message
	}
}

// keptFor returns the slots that a pod may use and that have capacity for it.
func (a *Arbiter) keptFor(pod *ledger.Placement) []ledger.Slot {
	var kept []ledger.Slot
	for _, ref := range pod.Slots {
		for _, view := range a.o.Ledger.ReservationSlots(ref.Namespace, ref.Name) {
			one := *pod
			one.Slots = []ledger.SlotRef{ref}
			if view.Ref == ref && a.o.Ledger.AppendFit(nil, &one, []string{view.Node})[0].Reason == ledger.Fits {
				kept = append(kept, view.Slot)
			}
		}
	}
	return kept
}

// groupVerdicts counts the nodes by their verdict on the pod; kept are slots that the pod fits.
func (a *Arbiter) groupVerdicts(e *Explanation, pod *ledger.Placement, kept []ledger.Slot) {
	groups := map[ledger.Verdict]*reserver.RefusalGroup{}
	a.o.Ledger.FitAll(pod, func(node string, v ledger.Verdict) bool {
		e.NodeCount++
		if v.Reason == ledger.Fits || slices.ContainsFunc(kept, func(h ledger.Slot) bool { return h.Node == node }) {
			e.FitCount++
			e.FitExamples = addExample(e.FitExamples, node)
			return true
		}
		g := groups[v]
		if g == nil {
			g = &reserver.RefusalGroup{Reason: v.Reason.String()}
			groups[v] = g
		}
		g.Nodes++
		g.Examples = addExample(g.Examples, node)
		return true
	})
	for v, g := range groups {
		if v.Reason == ledger.InsufficientResource || v.Reason.OfLimit() {
			g.Resource = a.shortResource(v, pod.Request)
		}
		e.Refusals = append(e.Refusals, *g)
	}
	slices.SortFunc(e.Refusals, func(a, b reserver.RefusalGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Resource, b.Resource))
	})
}

// shortResource names the resource of a verdict.
func (a *Arbiter) shortResource(v ledger.Verdict, request *resources.Request) string {
	if v.Unlisted {
		return string(request.Unlisted[0].Name)
	}
	return string(a.o.Ledger.Table().Name(v.Column))
}

// addExample keeps the first few names in order, whatever order they come in.
func addExample(examples []string, name string) []string {
	at, _ := slices.BinarySearch(examples, name)
	if at == explainExamples {
		return examples
	}
	examples = slices.Insert(examples, at, name)
	return examples[:min(len(examples), explainExamples)]
}

// missing says what a pod lacks on a node.
func (a *Arbiter) missing(pod *ledger.Placement, node string) []reserver.MissingAmount {
	list := []reserver.MissingAmount{}
	columns := make([]resources.Column, len(pod.Request.Amounts))
	for i := range columns {
		columns[i] = pod.Request.Amounts[i].Column
	}
	for i, u := range a.o.Ledger.AppendUsage(nil, []string{node}, columns) {
		asked := pod.Request.Amounts[i].Value
		if missing := resources.Sub(asked, u.Free()); missing > 0 && !u.Elsewhere {
			list = append(list, reserver.MissingAmount{
				Resource: string(a.o.Ledger.Table().Name(columns[i])), Requested: asked, Free: u.Free(), Missing: missing,
			})
		}
	}
	for _, u := range pod.Request.Unlisted {
		list = append(list, reserver.MissingAmount{Resource: string(u.Name), Requested: u.Value, Missing: u.Value})
	}
	return list
}
