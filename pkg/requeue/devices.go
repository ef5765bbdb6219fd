package requeue

import (
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// claimFreed reports whether a claim of devices that the pod names was freed without the pod knowing, and
// whether no event that schedulers watch reported that.
func (f *freed) claimFreed(a *attempt) (news, unannounced bool) {
	if a.pod.Devices == nil || len(f.claims) == 0 {
		return false, false
	}
	for _, name := range a.pod.Devices.Claims {
		if capacity := f.claims[podName{a.pod.Ref.Namespace, name}]; capacity.newsTo(a) {
			news, unannounced = true, unannounced || capacity.unannounced > a.revision
		}
	}
	return news, unannounced
}

// noteClaims notes that claims of devices were given back. unannounced says that no event that schedulers watch
// reports that.
func (f *freed) noteClaims(e *ledger.Event, unannounced bool, now time.Time) {
	for i := range e.Given {
		claim := &e.Given[i].Claim
		if claim.Name == "" {
			continue
		}
		key := podName{claim.Namespace, claim.Name}
		capacity := f.claims[key]
		if capacity.at, capacity.revision = now, e.Revision; unannounced {
			capacity.unannounced = e.Revision
		}
		f.claims[key] = capacity
	}
}

// claimChanged reports whether a claim that the pod names has changed just before: the
// ledger has no event for that, and an attempt may have been decided before and come after.
func (w *Pods) claimChanged(pod *cluster.Pod) bool {
	return pod.Devices != nil && slices.ContainsFunc(pod.Devices.Claims, func(name string) bool {
		_, changed := w.changedClaims.Get(podName{pod.Ref.Namespace, name})
		return changed
	})
}

// DeviceClaimChanged says that the object of a claim of devices came, went or was made anew: pods that name
// it are looked at.
func (w *Pods) DeviceClaimChanged(namespace, name string) {
	now := time.Now()
	claim := podName{namespace, name}
	w.changedClaims.Set(claim, nil, raceWindow)
	for _, a := range w.appendAttempts(nil) {
		if a.pod.Devices != nil && a.pod.Ref.Namespace == namespace && slices.Contains(a.pod.Devices.Claims, name) {
			w.tell(a, news{many: true}, now)
		}
	}
	w.passOn(func(host *Pods) { host.DeviceClaimChanged(namespace, name) })
}
