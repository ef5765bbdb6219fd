package cluster

import (
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Options configures a Cache. All fields are needed. The functions are called in the order of the changes, by the
// goroutine that receives them, so they must be quick and must not block.
type Options struct {
	// Gangs says which pods are members of gangs; with nil none is.
	Gangs *kinds.Table
	// OnPodBound is called when a pod has got a node, or was found with one. This function and the next may use
	// the Cache and the ledger, which both know of the change already. For a pod that the Comparer had to put
	// right they are called by the Comparer's goroutine, at any time.
	//
	// bypassed says that the pod was bound where it had been granted nothing: somebody did not ask first. It is false
	// for a pod whose scheduler binds it into the slot kept for it alone, and, as far as is known, for pods found at
	// the start and mirrors of static pods. It is true for pods created with a node, as by hand.
	OnPodBound func(pod *Pod, bypassed bool)
	// OnPodGone is called when a pod was deleted or has finished, also for a pod that was not reported before.
	OnPodGone func(pod ledger.PodRef)
	// Keep returns the slot that takes the place of a pod that had a node: it was deleted, or has finished while
	// being deleted. last is the pod's last state. keep is false where its capacity becomes free. told is called
	// once the slot is there, or refused, and not at all where the pod had no capacity to keep. Both are called while
	// the change is being recorded, so they must not use the Cache.
	Keep func(last *Pod) (slot ledger.Slot, told func(refused *ledger.Rejection), keep bool)
	// Devices says what the claims of devices that a pod names ask for. It is called while a change is being
	// recorded, so it must not use the Cache.
	Devices func(pod *Pod) *ledger.DeviceRequest
	// OnDeviceAnnotations is called for bound pods whose annotations of devices somebody has changed, once the ledger has
	// the change, and for pods without a node that name claims of devices: when first seen, and when they name others.
	OnDeviceAnnotations func(pod *Pod)
	// OnNodesChanged is called after labels or taints of a node changed, which no decision of the ledger depends on, and
	// for new nodes. It must not use the Cache.
	OnNodesChanged func()
	// OnCatchUp is called where the ledger's changes after a revision, and those of the next moments, may be older
	// than what other watchers of the cluster know: a watch was resumed, or something missed was put right.
	OnCatchUp func(since uint64)
	// OnNominated is called for pods without a node that are nominated for one, for another one, or for none any more.
	// For a full state it is called once all pods are in the ledger.
	OnNominated func(pod *Pod)
	Logger      logrus.FieldLogger
}
