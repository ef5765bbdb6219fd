package arbiter

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/globalreserve/globalreserve/pkg/arbiter/refused"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
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

// forgetAfter is how long a refused pod may be missing from the watch before it is taken to be gone.
const forgetAfter = time.Minute

// Waiting is a pod that was refused and has no node since.
type Waiting struct {
	refused.Waiter
	*Explanation

	For WaitsFor
}

// Waiters returns the pods of the namespaces that are wanted which were refused and have no node since, those that wait
// longest first. Explain says more of each.
func (a *Arbiter) Waiters(wanted func(namespace string) bool) []refused.Waiter {
	now := a.o.Ledger.Clock.Wall()
	list := a.refused.Waiting()
	slices.SortFunc(list, func(a, b refused.Waiter) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Last.Rejection.Pod.UID, b.Last.Rejection.Pod.UID))
	})
	return slices.DeleteFunc(list, func(w refused.Waiter) bool { // in order: it may be asked about some namespaces only
		ref := w.Last.Rejection.Pod
		info, known := a.o.Pods.Pod(ref.Namespace, ref.Name)
		if known && info.Ref.UID == ref.UID && info.Node == "" && !info.Finished && !info.Deleting {
			return !wanted(ref.Namespace)
		}
		if now.Sub(w.Last.At) > forgetAfter {
			a.refused.Settled(ref.UID) // it was refused late, after it was seen to be bound or gone
		}
		return true
	})
}

// CountWaiters counts the pods that were refused and have no node since, for a scrape.
func (a *Arbiter) CountWaiters() map[metrics.Pending]int {
	counts := map[metrics.Pending]int{}
	for _, w := range a.Waiters(func(string) bool { return true }) {
		counts[metrics.Pending{Scheduler: w.Last.Scheduler, Reason: w.Last.Reason}]++
	}
	return counts
}

// ExplainWaiting says of pods that were refused what they wait for now. One that has a node by now is left out.
func (a *Arbiter) ExplainWaiting(waiters []refused.Waiter) []Waiting {
	survey := sync.OnceValue(func() *ledger.Survey { return a.o.Ledger.Survey() })
	list := make([]Waiting, 0, len(waiters))
	for _, w := range waiters {
		ref := w.Last.Rejection.Pod
		info, _ := a.o.Pods.Pod(ref.Namespace, ref.Name)
		if info == nil || info.Ref.UID != ref.UID {
			continue
		}
		e := a.explainWith(ref, info, survey)
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
func (a *Arbiter) waitsFor(e *Explanation, last *refused.Refusal) WaitsFor {
	reason := ""
	if len(e.Refusals) > 0 {
		reason = e.Refusals[0].Reason
	}
	switch {
	case a.Undecided() != "":
		return ForServer
	case reason == ReasonRefused:
		return ForPermission
	case ofGang(last.Rejection.Reason):
		return ForGang
	case e.State != statePending || e.Slot.Name != "":
		return ForReservation
	case e.Fitting > 0:
		return ForScheduler
	case reason == "" || a.o.Ledger.FitsEmpty(e.Request):
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
	case ledger.QuotaExceeded.String(), ledger.ReservedLimit.String(), ledger.SlotLimit.String(), ledger.CallerLimit.String():
		return ForLimit
	case ledger.InsufficientDevices.String(), ledger.DeviceClaimInUse.String(), ledger.DeviceClaimUnusable.String():
		return ForDevices
	default:
		return ForCapacity
	}
}
