package deletedpods

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

const (
	// missedFor is how long an end of a pod is remembered that this server did not decide on. It is more than a
	// Lease lasts by default, and a write that was under way.
	missedFor = 30 * time.Second
	// overlap is for how long before its last sign of life a server may have missed the end of a pod, or not have
	// written what was to be kept.
	overlap = 2 * time.Second
	// maxMissed bounds how many are remembered.
	maxMissed = 20_000
	// takeOverTimeout is how long a server that takes over waits for each of the two things that it asks the API server:
	// nobody decides meanwhile.
	takeOverTimeout = 2 * time.Second
)

// missedPod is a pod that ended while another server, or none, decided.
type missedPod struct {
	last *cluster.Pod
	at   time.Time
}

// podKey is a pod as the Reservation made for its capacity names it. Users who write another UID into one cannot name
// the pods of other namespaces.
type podKey struct {
	namespace string
	uid       types.UID
}

func (m missedPod) key() podKey { return podKey{m.last.Ref.Namespace, m.last.Ref.UID} }

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
// that ended before was kept then, and may have been used up or given back since, which is not known. TakeOver is
// called once, when reservations are known and before anything else is decided. It returns for how many pods it kept
// capacity.
func (k *Keeper) TakeOver(ctx context.Context, since time.Time) (kept int) {
	k.awaitDeployments(ctx)
	k.mu.Lock()
	missed := k.missed
	k.missed, k.leads = nil, true
	k.mu.Unlock()
	if !k.enabled() {
		return 0
	}
	if oldest := k.Ledger.Clock.Now().Add(-missedFor); since.Before(oldest) {
		since = oldest
	} else {
		since = since.Add(-overlap)
	}
	missed = slices.DeleteFunc(missed, func(m missedPod) bool { return m.at.Before(since) })
	taken := k.takenOf(ctx, missed)
	for _, m := range missed {
		if !taken[m.key()] && k.keepMissed(m) {
			taken[m.key()] = true // a pod that finishes while it is deleted ends twice
			kept++
		}
	}
	return kept
}

// keepMissed keeps the capacity of one pod, if it is wanted and free.
func (k *Keeper) keepMissed(m missedPod) bool {
	t, complaints, keep := k.newTask(m.last, k.deploymentOf(m.last), m.at)
	if !keep || !t.slot.Deadline.After(k.Ledger.Clock.Now()) {
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

// awaitDeployments waits until the watch has listed Deployments, if that matters for any of the pods.
func (k *Keeper) awaitDeployments(ctx context.Context) {
	k.mu.Lock()
	matters := slices.ContainsFunc(k.missed, func(m missedPod) bool { return m.last.Controller.Kind == kindDeployment })
	k.mu.Unlock()
	if !matters || !k.enabled() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := k.Deployments.listed.Wait(ctx); err != nil {
		k.Log.WithError(err).
			Warn("the capacity of the deleted pods of Deployments is not kept, as it is not known which of these ask for that")
	}
}

// takenOf returns which pods have Reservations that another server made for their capacity. Where that cannot be read,
// any Reservation of the name counts.
func (k *Keeper) takenOf(ctx context.Context, missed []missedPod) map[podKey]bool {
	taken := map[podKey]bool{}
	for _, m := range missed {
		if k.Taken(m.last.Ref.Namespace, m.last.Ref.Name) || k.Taken(m.last.Ref.Namespace, suffixed(m.last)) {
			taken[m.key()] = true
		}
	}
	if len(taken) == 0 {
		return taken
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	made, err := k.Store.List(ctx, convert.MadeByLabel)
	if err != nil {
		k.Log.WithError(err).Warn("the capacity of deleted pods is not kept where there are Reservations of their names")
		return taken
	}
	clear(taken)
	for i := range made {
		taken[podKey{made[i].Namespace, types.UID(made[i].Annotations[podUIDAnnotation])}] = true
	}
	return taken
}
