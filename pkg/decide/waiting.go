package decide

import (
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// WaitsFor is what a pod that was refused waits for.
type WaitsFor string

// What pods wait for.
const (
	ForServer      WaitsFor = "server"      // nothing can be decided now
	ForPermission  WaitsFor = "permission"  // it may not be given capacity
	ForGang        WaitsFor = "gang"        // its gang cannot start
	ForReservation WaitsFor = "reservation" // capacity is kept for it; its scheduler has not bound it there yet
	ForScheduler   WaitsFor = "scheduler"   // there is capacity for it; its scheduler has not tried since
	ForLimit       WaitsFor = "limit"       // its namespace, or its caller, uses as much as it may
	ForNode        WaitsFor = "node"        // no node has as much as it asks for, even empty
	ForDevices     WaitsFor = "devices"     // for devices that others have
	ForCapacity    WaitsFor = "capacity"    // for others to end
)

// WaitsForAll are all of them.
var WaitsForAll = []WaitsFor{
	ForServer, ForPermission, ForGang, ForReservation, ForScheduler, ForLimit, ForNode, ForDevices, ForCapacity,
}

// Waiting is a pod that was refused and has no node since.
type Waiting struct {
	requeue.Waiter
	*Explanation

	For WaitsFor
}

// CountWaiters counts the pods that were refused and have no node since, for a scrape.
func (a *Arbiter) CountWaiters() map[metrics.Pending]int {
	counts := map[metrics.Pending]int{}
	for _, w := range a.o.Waiting.Waiters(func(string) bool { return true }) {
		counts[metrics.Pending{Scheduler: w.Last.Scheduler, Reason: w.Last.Reason}]++
	}
	return counts
}

// ExplainWaiting says of pods that were refused what they wait for now. One that has a node by now is left out.
func (a *Arbiter) ExplainWaiting(waiters []requeue.Waiter) []Waiting {
	list := make([]Waiting, 0, len(waiters))
	for _, w := range waiters {
		ref := w.Last.Rejection.Pod
		info, _ := a.o.Pods.Pod(ref.Namespace, ref.Name)
		if info == nil || info.Ref.UID != ref.UID {
			continue
		}
		e := a.explainWith(ref, info)
		if e.State != statePending && e.State != ledger.NoAllocation.OrReserved() {
			continue
		}
		list = append(list, Waiting{Waiter: w, Explanation: e, For: a.waitsFor(e, w.Last)})
	}
	return list
}

// PendingMembers returns the pods of a gang that have no node. They are shared and must not be changed.
func (a *Arbiter) PendingMembers(gang kinds.Key) []*cluster.Pod {
	pending, _, _ := a.o.Pods.Gang(gang)
	return pending
}

// waitsFor says what a pod waits for, by its explanation and its last refusal.
func (a *Arbiter) waitsFor(e *Explanation, last *requeue.Refusal) WaitsFor {
	reason := ""
	if len(e.Refusals) > 0 {
		reason = e.Refusals[0].Reason
	}
	switch {
	case a.Undecided() != "":
		return ForServer
	case reason == gates.Reason:
		return ForPermission
	case last.Rejection.Reason.OfGang():
		return ForGang
	case e.State != statePending || e.Slot.Name != "":
		return ForReservation
	case e.FitCount > 0:
		return ForScheduler
	case reason == "" || a.o.Ledger.FitsEmpty(&ledger.Placement{Request: e.Request}):
		return ofReason(reason)
	default:
		return ForNode
	}
}

// ofReason is what a pod waits for where most nodes refuse it for that reason.
func ofReason(reason string) WaitsFor {
	switch reason {
	case "":
		return ForNode
	case ledger.QuotaExceeded.String(), ledger.ReservedLimit.String(), ledger.SlotLimit.String(),
		ledger.CallerLimit.String():
		return ForLimit
	case ledger.InsufficientDevices.String(), ledger.DeviceClaimInUse.String(), ledger.DeviceClaimUnusable.String():
		return ForDevices
	default:
		return ForCapacity
	}
}
