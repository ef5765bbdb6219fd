package waiting

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// claimFreed reports whether a claim of devices that the pod names was freed without the pod knowing, and
// whether no event that schedulers watch told of it.
func (f *freed) claimFreed(a *attempt) (news, silent bool) {
	if a.pod.Devices == nil || len(f.claims) == 0 {
		return false, false
	}
	for _, name := range a.pod.Devices.Claims {
		if capacity := f.claims[podName{a.pod.Ref.Namespace, name}]; capacity.newsTo(a) {
			news, silent = true, silent || capacity.silent > a.revision
		}
	}
	return news, silent
}

// noteClaims notes that claims of devices were given back. silent says that no event that schedulers watch
// tells of it.
func (f *freed) noteClaims(e *ledger.Event, silent bool, now time.Time) {
	for i := range e.Given {
		claim := &e.Given[i].Claim
		if claim.Name == "" {
			continue
		}
		key := podName{claim.Namespace, claim.Name}
		capacity := f.claims[key]
		if capacity.at, capacity.revision = now, e.Revision; silent {
			capacity.silent = e.Revision
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
	for _, other := range w.hosts() {
		other.DeviceClaimChanged(namespace, name)
	}
}

// Mapped says that DeviceClasses leave resources to DRA that they did not before: pods that ask for one are looked at.
// The ledger has no event for that.
func (w *Pods) Mapped(added []string) {
	now := time.Now()
	for _, name := range added {
		w.mapped.Set(v1.ResourceName(name), &sync.Map{}, raceWindow)
	}
	isAdded := func(name v1.ResourceName) bool { return slices.Contains(added, string(name)) }
	for _, a := range w.appendAttempts(nil) {
		if a.pod.Request.AsksForExtended(w.Ledger.Table(), isAdded) {
			w.tell(a, news{many: true}, now)
		}
	}
	for _, other := range w.hosts() {
		other.Mapped(added)
	}
}

// justMapped reports whether the pod asks for a resource that Mapped has told of just before: an attempt may have been
// decided before and come after. What is refused once more was decided after.
func (w *Pods) justMapped(pod *cluster.Pod) bool {
	return pod.Request.AsksForExtended(w.Ledger.Table(), func(name v1.ResourceName) bool {
		told, just := w.mapped.Get(name)
		if !just {
			return false
		}
		_, again := told.(*sync.Map).LoadOrStore(pod.Ref.UID, nil)
		return !again
	})
}
