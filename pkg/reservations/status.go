package reservations

import (
	"cmp"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Reasons of the Available condition. A refused slot has the ledger's reason. An end without another reason has the
// final phase.
const (
	reasonHeld            = "AllSlotsHeld"
	reasonReleased        = "AllSlotsReleased"
	reasonNodeGone        = "NodeGone"
	reasonInvalidSpec     = "InvalidSpec"
	reasonTTLTooLong      = "TTLTooLong"
	reasonNoNodeFits      = "NoNodeFits"
	reasonReservedAlready = "PodReservedAlready"
	reasonCapacityLost    = "CapacityLost"
	reasonNotGranted      = "NotGranted"
	// reasonNotFinished is of the Finished condition, while it is False.
	reasonNotFinished = "NotFinished"
)

// describe writes what follows from the phase and the slots: the conditions and the printer's columns.
func (r *record) describe(why cause, now time.Time) {
	r.status.ObservedGeneration = r.rsv.Generation
	r.status.Consumed = fmt.Sprintf("%d/%d", r.status.CountSlots(v1alpha1.SlotConsumed), len(r.slots))
	r.status.NodeName = nodeColumn(r.status.Slots)
	available, finished := metav1.ConditionFalse, metav1.ConditionFalse
	finish := cause{reason: reasonNotFinished}
	switch {
	case r.final():
		finished, finish = metav1.ConditionTrue, cause{string(r.status.Phase), why.message}
	case r.status.Phase == v1alpha1.ReservationAvailable:
		available = metav1.ConditionTrue
		why.message = "every slot is held, or used by a pod"
	}
	r.setCondition(v1alpha1.ConditionAvailable, available, why, now)
	r.setCondition(v1alpha1.ConditionFinished, finished, finish, now)
}

func (r *record) setCondition(kind string, status metav1.ConditionStatus, why cause, now time.Time) {
	apimeta.SetStatusCondition(&r.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: why.reason, Message: informer.Clip(why.message, maxMessage),
		ObservedGeneration: r.rsv.Generation, LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	})
}

// condition returns the condition of a type, empty where there is none.
func (r *record) condition(kind string) metav1.Condition {
	if c := apimeta.FindStatusCondition(r.status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// finishedAt returns when the reservation ended.
func (r *record) finishedAt() time.Time {
	return r.condition(v1alpha1.ConditionFinished).LastTransitionTime.Time
}

// maxMessage is far below what the API takes; a message is for people.
const maxMessage = 1000

// nodeColumn names the first node, and how many other nodes there are.
func nodeColumn(slots []v1alpha1.SlotStatus) string {
	first, nodes := "", map[string]struct{}{}
	for i := range slots {
		if name := slots[i].NodeName; name != "" { // else it was given back before it had one
			first = cmp.Or(first, name)
			nodes[name] = struct{}{}
		}
	}
	if len(nodes) > 1 {
		return fmt.Sprintf("%s +%d", first, len(nodes)-1)
	}
	return first
}
