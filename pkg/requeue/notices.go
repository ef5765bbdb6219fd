package requeue

import (
	"fmt"
	"hash/crc32"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Each Event is a write to the API server. A pod gets the same one at most once in repeatAfter, and what reservations
// and limits keep from it is looked at once in lookAfter. Beyond the burst of all pods Events are left out, as explain
// says the same. Those about claims have a burst of their own: what is wrong there does not heal.
const (
	repeatAfter     = 5 * time.Minute
	lookAfter       = 10 * time.Second
	eventsPerSecond = 5
	eventBurst      = 50
)

// ofOthers is a key of notices; those of a gang have the name of the ledger's reason.
const ofOthers = ""

// reasonReserved is that of the Events about reservations; those about a limit, claims or a gang have the
// name of the ledger's reason.
const reasonReserved = "CapacityReserved"

// reasonRepeated is that of the Events about Bindings that are asked for again and again.
const reasonRepeated = "BindingRepeated"

// TellRefused writes Events on a pod that was refused all nodes offered: what is wrong with its claims, and what keeps
// it from the nodes.
func (w *Pods) TellRefused(pod *cluster.Pod, offered []string) {
	if pod.Devices.Asks() && pod.Ref.UID != "" {
		if reason, note := w.ClaimTrouble(pod); reason != ledger.Fits {
			// Of Events that differ in the note alone only the first is written, and then counted.
			action := fmt.Sprintf("Filter%x", crc32.ChecksumIEEE([]byte(note)))
			about := informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID)
			w.claimNotices.Warn(about, reason.String(), action, note)
		}
	}
	placement := pod.Placement("")
	mayTell := w.Ledger.HasSlots() || w.Ledger.Limited() || w.Gates.Refuse(&placement) != nil
	if !mayTell || !w.isDue(pod.Ref, ofOthers) {
		return
	}
	placement = w.Question.For(pod, "")
	if reason, note := w.keptFrom(&placement, offered); reason != "" {
		w.tellPod(pod.Ref, ofOthers, reason, "Filter", note)
	}
}

// TellGangRefused writes an Event on a pod that was refused for the sake of its gang, with the reason why. The reason
// of the Event is the ledger's. What reservations keep from the pod is of no account meanwhile.
func (w *Pods) TellGangRefused(pod *cluster.Pod, reason ledger.Reason, why string) {
	w.putOff(pod.Ref, ofOthers, lookAfter)
	if key := reason.String(); w.isDue(pod.Ref, key) {
		w.tellPod(pod.Ref, key, key, "KeepWhole", why)
	}
}

// TellRepeated writes an Event on a pod whose Binding was refused many times within a while. It reports whether it did.
func (w *Pods) TellRepeated(pod *cluster.Pod, r *Refusal, within time.Duration) bool {
	why := r.Message
	if why == "" {
		why = r.Rejection.Message()
	}
	note := fmt.Sprintf("scheduler %q (user %q) has asked %d times within %s to bind this pod to node %s, and was "+
		"refused each time. "+
		"Put it behind the scheduler extender, which tells it where there is no capacity, or see docs/integrations. The "+
		"last reason: %s",
		pod.Scheduler, r.Caller, r.Times, within.Round(time.Second), r.Rejection.Node, why)
	about := informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID)
	// Of Events that differ in the note alone only the first is written, and then counted.
	return w.notices.Tell(about, v1.EventTypeWarning, reasonRepeated, fmt.Sprint("RefuseBinding", r.Times), note)
}

// isDue reports whether it is time to look at a pod, or to write a note on it, and puts off the next time: of several
// callers at once one goes on.
func (w *Pods) isDue(pod ledger.PodRef, key string) bool {
	if pod.UID == "" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.record(pod)
	if time.Now().Before(r.notices[key]) {
		return false
	}
	r.putOff(key, lookAfter)
	return true
}

// putOff keeps a pod from being looked at, or getting an Event, for a while.
func (w *Pods) putOff(pod ledger.PodRef, key string, pause time.Duration) {
	if pod.UID == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(pod).putOff(key, pause)
}

func (r *record) putOff(key string, pause time.Duration) {
	if r.notices == nil {
		r.notices = map[string]time.Time{}
	}
	if until := time.Now().Add(pause); until.After(r.notices[key]) {
		r.notices[key] = until
	}
}

// tellPod writes an Event on a pod. Where that is left out, the next look at the pod writes it.
func (w *Pods) tellPod(pod ledger.PodRef, key, reason, action, note string) {
	about := informer.PodReference(pod.Namespace, pod.Name, pod.UID)
	if !w.notices.Tell(about, v1.EventTypeWarning, reason, action, note) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod.UID]; r != nil {
		r.putOff(key, repeatAfter)
	}
}

// keptFrom says what keeps a pod from the nodes offered; reason is empty where there is nothing to report.
func (w *Pods) keptFrom(p *ledger.Placement, offered []string) (reason, note string) {
	if err := w.Gates.Refuse(p); err != nil {
		return gates.Reason, err.Error()
	}
	if over := w.Ledger.OverLimit(p); over != nil {
		return over.Reason.String(), over.Message()
	}
	slot, node, ok := w.Ledger.HeldBack(p, offered)
	if !ok {
		return "", ""
	}
	if slot.Namespace != p.Pod.Namespace {
		return reasonReserved,
			fmt.Sprintf("node %s would have capacity for this pod, but a reservation of another namespace keeps it for others",
				node)
	}
	return reasonReserved, fmt.Sprintf("node %s would have capacity for this pod, but reservation %s keeps it for others",
		node, slot)
}
