package ledgertest

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Try tries a plan where some pods are gone, and asks where a pod would fit after it. Nothing may be left of it.
func (e *Explorer) Try(plan ledger.Plan, gone []types.UID, at *ledger.Placement, nodes []string) {
	was, plain := e.Snapshot(), e.hasNothing(at)
	plain = plain && !slices.ContainsFunc(plan.Slots, func(h ledger.Slot) bool { return h.Pod.Name == at.Pod.Name })
	e.Ledger.Try(func(t *ledger.Trial) {
		t.Remove(gone...)
		t.Reserve(plan)
		all := map[string]ledger.Verdict{}
		t.FitAll(at, func(node string, v ledger.Verdict) bool { all[node] = v; return true })
		if some := t.AppendFit(nil, at, nodes); plain {
			e.agree(all, some, nodes)
		}
	})
	require.Equal(e.t, was, e.Snapshot(), "a trial changes nothing")
}

// hasNothing reports whether a pod has no capacity, and may use no slot.
func (e *Explorer) hasNothing(at *ledger.Placement) bool {
	_, has := e.PlaceOf(at.Pod)
	return !has && len(at.Slots) == 0
}

// agree checks that the look at all nodes finds what the look at some does, for a pod that has nothing.
func (e *Explorer) agree(all map[string]ledger.Verdict, some []ledger.Verdict, nodes []string) {
	for k, node := range nodes {
		switch v, ok := all[node]; some[k].Reason {
		case ledger.PodGone, ledger.AllocatedElsewhere:
		case ledger.NodeUnknown:
			require.False(e.t, ok, "%s is among all nodes", node)
		default:
			require.True(e.t, ok, "%s is not among all nodes", node)
			require.Equal(e.t, some[k], v, "on %s", node)
		}
	}
}

// fitsAsCounted checks the answer for a pod that has nothing, may use no slot and needs no device by what is free on
// the node: it is the whole rule then.
func (e *Explorer) fitsAsCounted(at *ledger.Placement, v ledger.Verdict, now time.Time) {
	if !e.hasNothing(at) || at.Devices != nil || at.Preempt || v.Reason == ledger.PodGone || e.Limited() ||
		len(at.Request.ByDRA) > 0 {
		return
	}
	s, ok := e.NodeSnapshot(at.Node)
	if !ok || !s.Nodes[0].Exists {
		require.Equal(e.t, ledger.NodeUnknown, v.Reason)
		return
	}
	node := &s.Nodes[0]
	free := map[string]int64{}
	for _, a := range node.Amounts {
		free[string(a.Resource)] = a.Free
	}
	fits := !node.Unschedulable || at.Request.ToleratesUnschedulable
	for _, a := range at.Request.Amounts {
		name := e.Table().Name(a.Column)
		if a.Column > resources.Pods && (len(node.Devices) > 0 || e.LeavesToDRA(at.Node, at.Request)) {
			return // devices decide
		}
		fits = fits && (a.Value == 0 || a.Value <= free[string(name)])
	}
	if slices.ContainsFunc(at.Request.Ports, resources.HostPort.IsTerm) {
		return // which the labels of the node decide
	}
	fits = fits && len(at.Request.Unlisted) == 0
	pod := ledger.AllocationView{Pod: ledger.PodRef{Name: "asks"}, Node: at.Node, Request: at.Request}
	others := len(collisions(at.Node, s.Allocations, s.Slots))
	fits = fits && len(collisions(at.Node, append(s.Allocations, pod), s.Slots)) == others
	if fits && e.nominated.After(now) {
		return // others may have to make way for a pod that is nominated
	}
	require.Equal(e.t, fits, v.Reason == ledger.Fits, "%s for %+v on %+v", v.Reason, at.Request, node)
}

// Ask asks all there is to ask about a pod. The answers agree, and change nothing.
func (e *Explorer) Ask(at *ledger.Placement, nodes []string, victims []types.UID) {
	e.Try(ledger.Plan{}, victims, at, nodes)
	was, verdicts := e.Snapshot(), e.AppendFit(nil, at, nodes)
	all := map[string]ledger.Verdict{}
	e.FitAll(at, func(node string, v ledger.Verdict) bool { all[node] = v; return true })
	if e.hasNothing(at) {
		e.agree(all, verdicts, nodes)
	}
	may := *at
	may.Preempt = true
	for k, v := range e.AppendFit(nil, &may, nodes) {
		require.True(e.t, v.Reason == ledger.Fits || verdicts[k].Reason != ledger.Fits, "fits only what may end nothing")
	}
	gone := slices.ContainsFunc(verdicts, func(v ledger.Verdict) bool { return v.Reason == ledger.PodGone })
	e.refusalsAgree(at, all)
	e.slotsAgree(at, nodes, gone)
	listed, _ := e.Nodes()
	require.Equal(e.t, was.Nodes, listed, "by name")
	for i := range was.Nodes {
		e.readsAlike(&was, &was.Nodes[i])
	}
	require.Equal(e.t, was, e.Snapshot(), "asking changes nothing")
}

// refusalsAgree checks that one look at all nodes that refuse a pod finds what the look at each does.
func (e *Explorer) refusalsAgree(at *ledger.Placement, all map[string]ledger.Verdict) {
	got, count, ok := e.Refusals(at, len(all))
	if !ok {
		return
	}
	require.Empty(e.t, e.UsableSlots(at), "its slots are not looked at")
	require.Equal(e.t, len(all), count)
	want := map[string]ledger.Reason{}
	for node, v := range all {
		if v.Reason != ledger.Fits {
			want[node] = v.Reason
		}
	}
	require.True(e.t, maps.Equal(want, got), "%v, and by nodes %v", got, want)
	if len(want) > 0 {
		_, _, ok = e.Refusals(at, len(want)-1)
		require.False(e.t, ok, "few enough refuse")
	}
}

// slotsAgree checks that the slots that a pod is said to be able to use, or to be refused for, are there.
func (e *Explorer) slotsAgree(at *ledger.Placement, nodes []string, gone bool) {
	exists := func(ref ledger.SlotRef, node string) bool {
		return slices.ContainsFunc(e.ReservationSlots(ref.Namespace, ref.Name), func(h ledger.SlotView) bool {
			return h.Ref == ref && h.Node == node
		})
	}
	if ref, on, ok := e.HeldBack(at, nodes); ok {
		require.True(e.t, exists(ref, on), "%s is not on %s", ref, on)
	}
	for _, slot := range e.UsableSlots(at) {
		require.Equal(e.t, at.Pod.Namespace, slot.Ref.Namespace)
		require.True(e.t, exists(slot.Ref, slot.Node), "%+v", slot)
		if _, has := e.HomeOf(at.Pod); !has && !gone {
			require.Equal(e.t, ledger.Fits, e.AppendFit(nil, at, []string{slot.Node})[0].Reason, "of %+v", slot)
		}
	}
}

// readsAlike checks that a node is the same by each way of reading it.
func (e *Explorer) readsAlike(s *ledger.Snapshot, want *ledger.NodeView) {
	node, ok := e.NodeSnapshot(want.Name)
	require.True(e.t, ok)
	require.Equal(e.t, []ledger.NodeView{*want}, node.Nodes)
	elsewhere := func(a ledger.AllocationView) bool { return a.Node != want.Name }
	allocations := slices.DeleteFunc(slices.Clone(s.Allocations), elsewhere)
	require.ElementsMatch(e.t, allocations, node.Allocations)
	slots := slices.DeleteFunc(slices.Clone(s.Slots), func(h ledger.SlotView) bool { return h.Node != want.Name })
	require.ElementsMatch(e.t, slots, node.Slots)
	for _, a := range want.Amounts {
		column, _ := e.Table().Lookup(a.Resource)
		used, _ := resources.Add(a.Bound, a.Reserved)
		usage := e.AppendUsage(nil, []string{want.Name}, []resources.Column{column})
		require.Equal(e.t, []ledger.Usage{{Allocatable: a.Allocatable, Used: used}}, usage, "of %s", a.Resource)
	}
	view, listed, ok := e.AppendNodeAllocations(nil, want.Name)
	require.True(e.t, ok)
	require.Equal(e.t, *want, view)
	require.ElementsMatch(e.t, allocations, listed)
}
