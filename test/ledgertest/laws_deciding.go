package ledgertest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Reserve reserves what was tried before.
func (e *Explorer) Reserve(plan ledger.Plan, now time.Time) {
	e.decide(now, func() bool {
		was := e.Snapshot()
		var tried ledger.Result
		e.Ledger.Try(func(t *ledger.Trial) { tried = t.Reserve(plan) })
		require.Equal(e.t, was, e.Snapshot(), "a trial changes nothing")
		result := e.Ledger.Reserve(plan, now)
		require.Equal(e.t, e.Revision(), result.Revision)
		require.Equal(e.t, tried.Granted, result.Granted, "%+v\n%+v", tried, result)
		require.Len(e.t, result.Rejections, len(tried.Rejections))
		if plan.Mode == ledger.Partial {
			require.Len(e.t, plan.Slots, result.Granted+len(result.Rejections))
		} else if len(result.Rejections) > 0 {
			require.Zero(e.t, result.Granted)
		}
		for k := range result.Rejections {
			e.explains(&result.Rejections[k])
			require.Equal(e.t, tried.Rejections[k].Reason, result.Rejections[k].Reason)
		}
		if len(result.Rejections) == 0 {
			e.keeps(&plan, &result)
		}
		return result.Granted > 0
	})
}

// keeps checks that what was granted is there.
func (e *Explorer) keeps(plan *ledger.Plan, result *ledger.Result) {
	for k := range plan.Slots {
		h := &plan.Slots[k]
		same := func(o ledger.Slot) bool {
			return o.Ref == h.Ref && !h.InMemory() || h.Pod.Name != "" && o.Pod.Name == h.Pod.Name
		}
		if k != slices.IndexFunc(plan.Slots, same) || h.Pod.UID == "" && h.Pod.Name != "" {
			continue
		}
		place, ok := e.PlaceOf(h.Pod)
		is := func(o ledger.SlotView) bool { return o.Ref == h.Ref && o.Node == h.Node }
		ok = ok && (place == h.Node || h.Movable) || slices.ContainsFunc(e.ReservationSlots(h.Ref.Namespace, h.Ref.Name), is)
		require.True(e.t, ok, "was granted on %s, and is on %q: %+v", h.Node, place, h)
		for _, got := range e.ReservationSlots(h.Ref.Namespace, h.Ref.Name) {
			if got.Ref == h.Ref && got.Devices == h.Devices && len(got.Lost) == 0 && !h.InMemory() {
				e.isGiven(h.Ref, h.Node, h.Devices, got.Given)
			}
		}
		if got, ok := e.InMemory(h.Pod); ok && h.InMemory() && !result.Held[k] && got.Devices == h.Devices {
			e.isGiven(h.Pod, got.Node, h.Devices, got.Given)
		}
	}
}

// StartBind binds a pod, which is what was said when it was asked for.
func (e *Explorer) StartBind(at *ledger.Placement, now time.Time) {
	e.bind(at, now, func() (ledger.Grant, *ledger.Rejection) { return e.Ledger.StartBind(at, now) })
}

// ChangeBind changes what a pod that is being bound asks for.
func (e *Explorer) ChangeBind(at *ledger.Placement, now time.Time) {
	e.decide(now, func() bool {
		_, rejection := e.Ledger.ChangeBind(at, now)
		e.explains(rejection)
		return rejection == nil
	})
}

// StartBindWith binds a pod and does more beside it, all of it or nothing.
func (e *Explorer) StartBindWith(at *ledger.Placement, x *ledger.Exchange, now time.Time) {
	e.decide(now, func() bool {
		was := e.Snapshot()
		e.Ledger.Try(func(t *ledger.Trial) { t.Exchange(x) })
		require.Equal(e.t, was, e.Snapshot(), "a trial changes nothing")
		grant, rejection := e.Ledger.StartBindWith(at, x, now)
		if e.explains(rejection); rejection == nil {
			e.isBinding(at, &grant)
		}
		if rejection == nil && grant.Before == ledger.NoAllocation {
			e.exchanged(x)
		}
		return rejection == nil
	})
}

// Exchange gives some up and makes others, all of it or nothing.
func (e *Explorer) Exchange(x *ledger.Exchange, now time.Time) {
	e.decide(now, func() bool {
		var tried *ledger.Rejection
		e.Ledger.Try(func(t *ledger.Trial) { tried = t.Exchange(x) })
		rejection := e.Ledger.Exchange(x, now)
		require.Equal(e.t, tried == nil, rejection == nil, "%+v, tried %+v", rejection, tried)
		if e.explains(rejection); rejection == nil {
			e.exchanged(x)
		}
		return rejection == nil
	})
}

// exchanged checks that what was to be kept is kept, each on one of its nodes.
func (e *Explorer) exchanged(x *ledger.Exchange) {
	nodes := map[string][]string{} // a pod may be in several choices, with its UID or without
	for _, choice := range x.Keep {
		for k := range choice.Slots {
			name := choice.Slots[k].Pod.Name
			nodes[name] = append(nodes[name], choice.Nodes...)
		}
	}
	for _, choice := range x.Keep {
		for k := range choice.Slots {
			pod := choice.Slots[k].Pod
			_, ok := e.PlaceOf(pod)
			require.True(e.t, ok || pod.UID == "", "nothing is kept for %s", pod)
			if view, kept := e.InMemory(pod); kept && pod.UID != "" {
				require.Contains(e.t, nodes[pod.Name], view.Node, "of what is kept for %s", pod)
			}
		}
	}
}

func (e *Explorer) bind(at *ledger.Placement, now time.Time, start func() (ledger.Grant, *ledger.Rejection)) {
	e.decide(now, func() bool {
		has, _ := e.PlaceOf(at.Pod)
		verdict := e.AppendFit(nil, at, []string{at.Node})[0]
		e.fitsAsCounted(at, verdict, now)
		e.devicesAsCounted(at, verdict)
		was := e.Snapshot()
		var foreseen *ledger.Grant
		if !at.Preempt && verdict.Reason == ledger.Fits {
			e.Ledger.Try(func(t *ledger.Trial) { foreseen = new(t.Grant(at)) })
		}
		grant, rejection := start()
		if e.explains(rejection); rejection != nil {
			e.isTrue(rejection)
			require.True(e.t, has != "" || rejection.Reason == verdict.Reason, "%+v, foreseen as %s", rejection, verdict.Reason)
			return false
		}
		require.Equal(e.t, ledger.Fits, verdict.Reason, "the bind is granted")
		if foreseen != nil {
			require.Equal(e.t, *foreseen, grant, "as foreseen")
		}
		if e.isBinding(at, &grant); has == "" {
			e.isGiven(at.Pod, at.Node, at.Devices, grant.Devices)
			if grant.Slot.Name == "" && !at.Preempt {
				e.makesWay(at, now)
			}
		}
		e.keepDevices(&was, at.Pod)
		return true
	})
}

// isBinding checks that a pod has what it was granted.
func (e *Explorer) isBinding(at *ledger.Placement, grant *ledger.Grant) {
	if at.Pod.UID == "" {
		return // another pod of the name may be found
	}
	got, ok := e.Allocation(at.Pod)
	require.True(e.t, ok, "%s was granted %s", at.Pod, at.Node)
	require.Equal(e.t, at.Node, got.Node)
	require.Equal(e.t, grant.Slot, got.Slot)
	require.Equal(e.t, grant.Devices, got.Given)
	if grant.Before == ledger.NoAllocation {
		require.Equal(e.t, ledger.Binding, got.State)
		for _, a := range at.Request.Amounts {
			require.LessOrEqual(e.t, a.Value, got.Request.Value(a.Column), "of what %s asks for", at.Pod)
		}
	}
}

// explains checks that a refusal says what is missing, and who has it.
func (e *Explorer) explains(r *ledger.Rejection) {
	if r == nil {
		return
	}
	require.NotEmpty(e.t, r.Message(), "%+v", r)
	require.NotEqual(e.t, ledger.Fits, r.Reason)
	if r.Reason == ledger.InsufficientResource || r.Reason.OfLimit() {
		require.Greater(e.t, r.Requested, r.Free, "%+v", r)
	}
	require.LessOrEqual(e.t, len(r.Holders), 5)
	for k, h := range r.Holders {
		require.True(e.t, k == 0 || h.Amount <= r.Holders[k-1].Amount, "the largest come first: %+v", r.Holders)
	}
}

// isTrue checks that those who a refusal says have what is missing are there, and that the pod is where it says.
func (e *Explorer) isTrue(r *ledger.Rejection) {
	if home, ok := e.HomeOf(r.Pod); ok && r.Reason == ledger.AllocatedElsewhere {
		require.Equal(e.t, home, r.AllocatedOn)
	}
	for _, h := range r.Holders {
		_, ok := e.PlaceOf(h.Pod)
		if h.Slot.Name != "" {
			ok = slices.ContainsFunc(e.ReservationSlots(h.Slot.Namespace, h.Slot.Name),
				func(o ledger.SlotView) bool { return o.Ref == h.Slot })
		}
		require.True(e.t, ok, "holds something and is not there: %+v", h)
	}
}

// Preempt binds a pod that may end reservations. Those that end are of a lower priority, and end whole.
func (e *Explorer) Preempt(at *ledger.Placement, now time.Time) {
	may := *at
	may.Preempt = true
	e.Expire(now)
	slots, revision := e.Slots()
	e.bind(&may, now, func() (ledger.Grant, *ledger.Rejection) { return e.Ledger.StartBind(&may, now) })
	events, _ := e.EventsSince(nil, revision, 1<<30)
	for k := range events {
		if events[k].Type != ledger.SlotPreempted {
			continue
		}
		for _, h := range slots {
			if h.Ref.Namespace != events[k].Slot.Namespace || h.Ref.Name != events[k].Slot.Name {
				continue
			}
			binding := func(c ledger.Consumer) bool { return c.State == ledger.Binding }
			require.True(e.t, h.Preemptible && h.Priority < may.Priority && !slices.ContainsFunc(h.Consumers, binding),
				"should not have been ended for %+v: %+v", may, h)
			require.Empty(e.t, e.ReservationSlots(h.Ref.Namespace, h.Ref.Name), "ends as a whole")
		}
	}
}

// Resize has a pod grow, as was said before.
func (e *Explorer) Resize(pod ledger.PodRef, asked *resources.Request, version uint64, now time.Time) {
	e.decide(now, func() bool {
		found, fit := e.FitResize(pod, asked)
		foundNow, rejection := e.Ledger.Resize(pod, asked, version, now)
		e.explains(rejection)
		require.Equal(e.t, found, foundNow)
		require.Equal(e.t, fit == nil, rejection == nil, "%+v, foreseen as %+v", rejection, fit)
		return found && rejection == nil
	})
}

// Confirm records a bind that succeeded.
func (e *Explorer) Confirm(pod ledger.PodRef, node string) {
	if got, ok := e.Allocation(pod); e.Ledger.Confirm(pod, node) {
		require.True(e.t, ok && got.Node == node, "%s was not being bound to %s: %+v", pod, node, got)
		got, _ = e.Allocation(pod)
		require.Equal(e.t, ledger.Bound, got.State)
	}
}

// BindFailed records a bind that failed.
func (e *Explorer) BindFailed(pod ledger.PodRef, node string) {
	got, ok := e.Allocation(pod)
	if !e.Ledger.BindFailed(pod, node) {
		return
	}
	require.True(e.t, ok && got.State == ledger.Binding && got.Node == node, "was not being bound to %s: %+v", node, got)
	got, _ = e.Allocation(pod)
	require.True(e.t, got.Pod != pod || pod.UID == "", "its bind has failed: %+v", got)
}

// ObservePod records a pod that is bound: it has what it asks for, where it is.
func (e *Explorer) ObservePod(o ledger.PodObservation) {
	if e.Ledger.ObservePod(o) == ledger.ObservedNothing {
		return
	}
	got, ok := e.Allocation(o.Pod)
	require.True(e.t, ok && got.Node == o.Node && got.State == ledger.Bound, "%+v is seen as %+v", o, got)
	for _, a := range o.Request.Amounts {
		require.LessOrEqual(e.t, a.Value, got.Request.Value(a.Column), "of what %s asks for", o.Pod)
	}
}

// RemovePod records that a pod is gone: it has nothing.
func (e *Explorer) RemovePod(pod ledger.PodRef, version uint64) {
	if e.nominee != nil && pod.Name == e.nominee.Pod.Name {
		e.nominee = nil
	}
	if e.Ledger.RemovePod(pod, version) {
		got, _ := e.Allocation(pod)
		require.NotEqual(e.t, pod, got.Pod, "is gone")
	}
}

// RemoveNode records that a node is gone, and with it what was kept there for pods that are nominated.
func (e *Explorer) RemoveNode(name string) {
	e.nominee = nil
	e.Ledger.RemoveNode(name)
}

// RemovePodHolding records that a pod is gone, and keeps its capacity.
func (e *Explorer) RemovePodHolding(pod ledger.PodRef, version uint64, slot ledger.Slot) {
	if e.nominee != nil && pod.Name == e.nominee.Pod.Name {
		e.nominee = nil
	}
	_, _ = e.Ledger.RemovePodHolding(pod, version, slot)
}

// Nominate keeps something for a pod that is nominated.
func (e *Explorer) Nominate(at *ledger.Placement, until time.Time) {
	e.nominee = nil
	if e.Ledger.Nominate(at, until) && at.Node != "" {
		e.nominee, e.nomineeUntil = at, until
	}
	if until.After(e.nominated) {
		e.nominated = until
	}
}

// makesWay checks that a pod that was bound to free capacity left a nominated pod of a higher priority what that asks
// for, of all that it asks for itself.
func (e *Explorer) makesWay(at *ledger.Placement, now time.Time) {
	if e.nominee == nil || !e.nomineeUntil.After(now) || e.nominee.Node != at.Node || e.nominee.Priority <= at.Priority ||
		e.nominee.Pod.Name == at.Pod.Name {
		return
	}
	s, _ := e.NodeSnapshot(at.Node)
	for _, a := range s.Nodes[0].Amounts {
		column, _ := e.Table().Lookup(a.Resource)
		if at.Request.Value(column) > 0 {
			kept := e.nominee.Request.Value(column)
			require.GreaterOrEqual(e.t, a.Free, kept, "of %s, nominated is %+v", a.Resource, e.nominee)
		}
	}
}
