package deletedpods

import (
	"context"
	"time"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// missedFor is how long an end of a pod is remembered that this server did not decide on. It is more than a
	// Lease lasts by default, and a write that was under way.
	missedFor = 30 * time.Second
	// overlap is for how long before it was last heard of a server may have missed the end of a pod, or not have
	// written what was to be kept.
	overlap = 2 * time.Second
	// maxMissed bounds how many are remembered.
	maxMissed = 20_000
)

// missedPod is a pod that ended while another server, or none, decided.
type missedPod struct {
	last *cluster.Pod
	at   time.Time
}

// miss remembers the end of a pod until TakeOver. It reports false after that.
func (k *Keeper) miss(last *cluster.Pod) bool {
	now := k.Ledger.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leads {
		return false
	}
	if _, keep := wishOf(last, nil); !keep && last.Controller.Kind != kindDeployment {
		return true
	}
	for len(k.missed) > 0 && (now.Sub(k.missed[0].at) > missedFor || len(k.missed) >= maxMissed) {
		k.missed = k.missed[1:]
	}
	k.missed = append(k.missed, missedPod{last, now})
	return true
}

// TakeOver keeps the capacity of pods that ended while no server decided, as far as it is free: the server before this
// one may have given it to others, or kept it. since is when the last server stopped deciding. The capacity of pods
// that ended before was kept then, and may have been used up or given back since, which cannot be told. TakeOver is
// called once, when reservations are known and before anything else is decided. It returns for how many pods it kept
// capacity.
func (k *Keeper) TakeOver(ctx context.Context, since time.Time) (kept int) {
	k.mu.Lock()
	missed := k.missed
	k.missed, k.leads = nil, true
	k.mu.Unlock()
	if !k.enabled() {
		return 0
	}
	deployments := map[string]*cluster.Annotations{}
	if oldest := k.Ledger.Clock.Now().Add(-missedFor); since.Before(oldest) {
		since = oldest
	} else {
		since = since.Add(-overlap)
	}
	for _, m := range missed {
		if !m.at.Before(since) && k.keepMissed(ctx, m, deployments) {
			kept++
		}
	}
	return kept
}

// keepMissed keeps the capacity of one pod, if it is wanted, free, and not kept yet. deployments has the annotations
// of those that were read before.
func (k *Keeper) keepMissed(ctx context.Context, m missedPod, deployments map[string]*cluster.Annotations) bool {
	t, complaints, keep := k.newTask(m.last, k.liveMarks(ctx, m.last, deployments), m.at)
	taken := k.Taken(m.last.Ref.Namespace, m.last.Ref.Name) || k.Taken(m.last.Ref.Namespace, suffixed(m.last))
	if !keep || taken || !t.slot.Deadline.After(k.Ledger.Clock.Now()) {
		return false
	}
	var tried ledger.Result
	k.Ledger.Try(func(trial *ledger.Trial) {
		tried = trial.Reserve(ledger.Plan{Slots: []ledger.Slot{t.slot}, Mode: ledger.AllOrNothing})
	})
	if tried.Granted != 1 {
		why := "the capacity of this pod was taken while no server watched over it"
		if len(tried.Rejections) > 0 && tried.Rejections[0].Reason.OfLimit() {
			why = tried.Rejections[0].Message()
		}
		k.warn(m.last, reasonNotKept, why)
		return false
	}
	k.Ledger.ObserveSlot(t.slot)
	k.begin(t, complaints)
	return true
}

// liveMarks reads the annotations of the Deployment of a pod, each one once: the watch may not have brought it yet.
func (k *Keeper) liveMarks(ctx context.Context, pod *cluster.Pod,
	read map[string]*cluster.Annotations,
) *cluster.Annotations {
	if pod.Controller.Kind != kindDeployment {
		return nil
	}
	key := pod.Ref.Namespace + "/" + pod.Controller.Name
	marks, ok := read[key]
	if !ok {
		var err error
		if marks, err = k.Deployments.live(ctx, pod.Ref.Namespace, pod.Controller.Name); err != nil {
			k.Log.WithError(err).
				Warn("the capacity of the deleted pods of a Deployment is not kept, as it is not known whether it asks for that")
		}
		read[key] = marks
	}
	return marks
}
