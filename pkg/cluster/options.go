package cluster

import (
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Listener is told about pods. It is called in the order of the changes, by the
// goroutine that receives them, so it must be quick and must not block. It may
// use the Cache and the ledger, which both know of the change already. For a
// pod that the Comparer had to put right it is called by the Comparer's
// goroutine, at any time.
type Listener interface {
	// PodBound tells that a pod has a node now, or was found with one.
	PodBound(pod *Pod)
	// PodGone tells that a pod was deleted or has finished. It may come for a
	// pod nothing was told of before.
	PodGone(pod ledger.PodRef)
	// PodBypassed tells that a pod was bound where it had been granted nothing: somebody
	// did not ask first. A pod whose scheduler binds it into the slot kept for it alone
	// was asked for. Pods found at the start are not told of; nor are mirrors of static
	// pods. Pods created with a node, as by hand, are.
	PodBypassed(pod *Pod)
}

// ListenerFuncs is a Listener made of functions; those left nil do nothing.
type ListenerFuncs struct {
	OnPodBound    func(pod *Pod)
	OnPodGone     func(pod ledger.PodRef)
	OnPodBypassed func(pod *Pod)
}

// PodBound implements Listener.
func (f ListenerFuncs) PodBound(pod *Pod) {
	if f.OnPodBound != nil {
		f.OnPodBound(pod)
	}
}

// PodGone implements Listener.
func (f ListenerFuncs) PodGone(pod ledger.PodRef) {
	if f.OnPodGone != nil {
		f.OnPodGone(pod)
	}
}

// PodBypassed implements Listener.
func (f ListenerFuncs) PodBypassed(pod *Pod) {
	if f.OnPodBypassed != nil {
		f.OnPodBypassed(pod)
	}
}

// RoomKeeper decides whether the room of a pod that is gone is kept for another.
type RoomKeeper interface {
	// Keep returns the hold that takes the place of a pod that had a node: it was
	// deleted, or has finished while being deleted. last is the pod's last state.
	// keep is false where its room becomes free. kept is called once the hold is
	// there, and not at all where the pod had no room to keep. Both are called
	// while the change is being recorded, so they must be quick, and they must
	// not use the Cache.
	Keep(last *Pod) (hold ledger.Hold, kept func(), keep bool)
}

// Options configures a Cache. The zero value is usable.
type Options struct {
	// Listeners are called in this order.
	Listeners []Listener
	// Rooms keeps the rooms of pods that are gone; nil means that all become free.
	Rooms RoomKeeper
	// Devices says what the claims of devices that a pod names ask for; nil where pods have none. It is called
	// while a change is being recorded, so it must be quick, and it must not use the Cache.
	Devices func(pod *Pod) *ledger.DeviceRequest
	// OnDeviceMarks, if not nil, is told of bound pods whose annotations of devices somebody has changed, once
	// the ledger has been.
	OnDeviceMarks func(pod *Pod)
	// OnCatchUp, if not nil, is told that the ledger's changes after a revision, and
	// those of the next moments, may be older than what other watchers of the
	// cluster know: a watch was resumed, or something missed was put right. It must
	// be quick.
	OnCatchUp func(since uint64)
	// Logger gets what the cache has to say; nil means logrus's standard logger.
	Logger logrus.FieldLogger
	// PageSize is how many objects are listed at once where the API server does
	// not stream lists; 0 means 1000.
	PageSize int64
}

const defaultPageSize = 1000

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = logrus.StandardLogger()
	}
	if o.PageSize <= 0 {
		o.PageSize = defaultPageSize
	}
	if o.OnCatchUp == nil {
		o.OnCatchUp = func(uint64) {}
	}
	return o
}
