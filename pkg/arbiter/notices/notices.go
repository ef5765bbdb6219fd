// Package notices tells pods that wait, by an Event, which reservation keeps the
// capacity they lack, which limit they are over, why they have to wait for their gang, or that their
// scheduler repeats a Binding that is refused.
// Filter's own reasons are constant texts and name nobody, because schedulers copy them into the
// pods' conditions.
//
// What may be touched: how often Events are written is decided here, and nowhere
// else. Which slot is to blame is the ledger's to say.
package notices

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/arbiter/refused"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// Each Event is a write to the API server. A pod is told at most once in
// repeatAfter, and looked at once in lookAfter; beyond the burst of all pods
// Events are left out, as explain says the same.
const (
	repeatAfter     = 5 * time.Minute
	lookAfter       = 10 * time.Second
	maxPods         = 4096
	eventsPerSecond = 5
	eventBurst      = 50
)

// Reason is that of the Events about reservations; those about a limit, or a gang, have the
// name of the ledger's reason.
const Reason = "CapacityReserved"

// ReasonRepeated is that of the Events about Bindings that are asked for again and again.
const ReasonRepeated = "BindingRepeated"

// Writer writes the Events. Make one with New. It is safe for concurrent use.
type Writer struct {
	ledger   ledger.Reader
	question *placement.Builder
	events   *follow.Events
	looking  sync.Mutex // so that of several who look at one pod at once one goes on
	next     *lru.Cache // by UID, or refusal: when a pod is looked at again
}

// New returns a Writer.
func New(l ledger.Reader, q *placement.Builder, recorder events.EventRecorder) *Writer {
	return &Writer{
		ledger: l, question: q, events: follow.NewEvents(recorder, eventsPerSecond, eventBurst), next: lru.New(maxPods),
	}
}

// Refused is told of a pod that was refused all nodes offered.
func (w *Writer) Refused(pod *cluster.Pod, offered []string) {
	if pod.Ref.UID == "" || (!w.ledger.HasSlots() && !w.ledger.Limited()) {
		return
	}
	now := time.Now()
	if !w.isDue(pod.Ref.UID, now) {
		return
	}
	placement := w.question.For(pod, "")
	if reason, note := w.why(&placement, offered); reason != "" {
		w.tell(pod.Ref.UID, pod, now, reason, "Filter", note)
	}
}

// GangRefused is told of a pod that was refused for the sake of its gang, and why. The reason of the Event is the
// ledger's; of each the pod is told by itself. What reservations keep from it is of no account meanwhile.
func (w *Writer) GangRefused(pod *cluster.Pod, reason ledger.Reason, why string) {
	if pod.Ref.UID == "" {
		return
	}
	now := time.Now()
	w.next.Add(pod.Ref.UID, now.Add(lookAfter))
	if key := (refusal{pod.Ref.UID, reason}); w.isDue(key, now) {
		w.tell(key, pod, now, reason.String(), "KeepWhole", why)
	}
}

// Repeated is told of a pod whose Binding was refused many times within a while, and reports whether the pod is told.
func (w *Writer) Repeated(pod *cluster.Pod, r *refused.Refusal, within time.Duration) bool {
	why := r.Message
	if why == "" {
		why = r.Rejection.Message()
	}
	note := fmt.Sprintf("scheduler %q (user %q) has asked %d times within %s to bind this pod to node %s, and was refused each time. "+
		"Put it behind the scheduler extender, which tells it where there is no capacity, or see docs/integrations. The last reason: %s",
		pod.Scheduler, r.Caller, r.Times, within.Round(time.Second), r.Rejection.Node, why)
	about := follow.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID)
	// Of Events that differ in the note alone only the first is written, and then counted.
	return w.events.Tell(about, v1.EventTypeWarning, ReasonRepeated, fmt.Sprint("RefuseBinding", r.Times), note)
}

// refusal is what a pod is told for the sake of its gang.
type refusal struct {
	pod    types.UID
	reason ledger.Reason
}

// isDue reports whether it is time to look at a key, and takes note that it was looked at.
func (w *Writer) isDue(key lru.Key, now time.Time) bool {
	w.looking.Lock()
	defer w.looking.Unlock()
	if next, ok := w.next.Get(key); ok && now.Before(next.(time.Time)) {
		return false
	}
	w.next.Add(key, now.Add(lookAfter))
	return true
}

func (w *Writer) tell(key lru.Key, pod *cluster.Pod, now time.Time, reason, action, note string) {
	about := follow.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID)
	if w.events.Tell(about, v1.EventTypeWarning, reason, action, note) {
		w.next.Add(key, now.Add(repeatAfter))
	}
}

// why returns what to tell a pod; reason is empty where there is nothing.
func (w *Writer) why(p *ledger.Placement, offered []string) (reason, note string) {
	if over := w.ledger.OverLimit(p); over != nil {
		return over.Reason.String(), over.Message()
	}
	slot, node, ok := w.ledger.HeldBack(p, offered)
	if !ok {
		return "", ""
	}
	if slot.Namespace != p.Pod.Namespace {
		return Reason, fmt.Sprintf("node %s would have capacity for this pod, but a reservation of another namespace keeps it for others", node)
	}
	return Reason, fmt.Sprintf("node %s would have capacity for this pod, but reservation %s keeps it for others", node, slot)
}
