package extender

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

const (
	// maxLag is how long a filter call waits for the informer. It is usually some
	// milliseconds behind a scheduler at most; more is not worth holding up a
	// scheduling cycle for.
	maxLag = 100 * time.Millisecond
	// lagPause is for how long nobody waits after one wait was in vain, so that an
	// informer that is far behind does not slow schedulers down to its own pace.
	lagPause = time.Second
)

// lag keeps filter from deciding on a state of the cluster that is older than the
// one its caller knows. Whoever sends a pod that is newer than all the informer has
// brought may have seen another go first: one whose room is still counted, or is
// about to be kept for the very pod that is asked about.
type lag struct {
	pausedUntil atomic.Int64 // Unix time in nanoseconds
}

// await returns when the informer knows all that happened before the pod's state,
// or when it would take too long.
func (l *lag) await(ctx context.Context, pods Pods, pod *podinfo.Info) {
	if pod.ResourceVersion == 0 || time.Now().UnixNano() < l.pausedUntil.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxLag)
	defer cancel()
	if pods.WaitForPods(ctx, pod.ResourceVersion) != nil {
		l.pausedUntil.Store(time.Now().Add(lagPause).UnixNano())
	}
}
