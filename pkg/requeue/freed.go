package requeue

import (
	"maps"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// freedCapacity is the last time capacity was freed on a node.
type freedCapacity struct {
	revision uint64
	// unannounced is the last revision at which it was freed without an event that schedulers watch; 0 if there was none.
	unannounced uint64
	// held is the last revision at which a slot was placed there; 0 if there was none.
	held uint64
	at   time.Time
}

// newsTo reports whether a scheduler that was refused does not know of the capacity.
func (f freedCapacity) newsTo(a *attempt) bool {
	return f.unannounced > a.revision || (f.revision > a.revision && f.at.Sub(a.at) < raceWindow)
}

// podName finds a pod whose claim may have been made before the pod existed.
type podName struct{ namespace, name string }

func nameOf(pod ledger.PodRef) podName { return podName{pod.Namespace, pod.Name} }

// freed is where and for whom capacity was freed.
type freed struct {
	nodes map[string]freedCapacity
	// pods whose own allocation, or a slot for them alone, ended.
	pods map[podName]freedCapacity
	// claims of devices that were given back: their pods may run on any node.
	claims map[podName]freedCapacity
	held   uint64 // the newest revision at which a slot was placed anywhere
}

func newFreed() freed {
	return freed{nodes: map[string]freedCapacity{}, pods: map[podName]freedCapacity{}, claims: map[podName]freedCapacity{}}
}

func (f *freed) empty() bool { return len(f.nodes) == 0 && len(f.pods) == 0 }

func (f *freed) clear() {
	clear(f.nodes)
	clear(f.pods)
	clear(f.claims)
	f.held = 0
}

// note records an event, and reports whether it frees capacity. late says that schedulers may have known of it for
// long.
func (f *freed) note(e *ledger.Event, late bool, now time.Time) bool {
	node, unannounced := e.Node, late
	switch e.Type {
	case ledger.AllocationBindFailed, ledger.SlotReleased, ledger.SlotExpired:
		unannounced = true
		if e.Pod.Name != "" {
			f.pods[nameOf(e.Pod)] = freedCapacity{revision: e.Revision, at: now}
		}
	case ledger.SlotPreempted, ledger.SlotConsumed:
		unannounced = true // a consumed slot gives back what its pod did not need
	case ledger.AllocationRemoved:
		unannounced = late || e.State != ledger.Bound // schedulers see only the end of bound pods
	case ledger.AllocationMoved:
		node, unannounced = e.MovedFrom, true
	case ledger.SlotPlaced:
		if e.Slot.Name == "" {
			return false // in memory, for a pod whose scheduler knows; its size may be less now
		}
		capacity := f.nodes[node]
		capacity.at, capacity.held = now, e.Revision
		f.nodes[node], f.held = capacity, max(f.held, e.Revision)
		return true
	case ledger.DevicesUpdated:
		unannounced = true
	case ledger.NodeUpdated:
		unannounced = late || e.Lapsed || len(e.DRA) > 0 // schedulers may have seen slices before this server
	case ledger.AllocationResized:
	default:
		return false
	}
	f.noteClaims(e, unannounced, now)
	capacity := f.nodes[node]
	capacity.at, capacity.revision = now, e.Revision
	if unannounced {
		capacity.unannounced = e.Revision
	}
	f.nodes[node] = capacity
	return true
}

// noteAll treats every node as silently freed.
func (f *freed) noteAll(l ledger.Reader, revision uint64, now time.Time) {
	f.held = revision
	for _, name := range l.NodeNames() {
		f.nodes[name] = freedCapacity{revision: revision, unannounced: revision, held: revision, at: now}
	}
}

// prune forgets what was freed before a moment.
func (f *freed) prune(oldest time.Time) {
	prune(f.nodes, oldest)
	prune(f.pods, oldest)
	prune(f.claims, oldest)
}

func prune[K comparable](m map[K]freedCapacity, oldest time.Time) {
	maps.DeleteFunc(m, func(_ K, capacity freedCapacity) bool { return capacity.at.Before(oldest) })
}

// noteFreed records an event for the attempts to come, and for those on their way here.
func (w *Pods) noteFreed(e *ledger.Event) {
	l := &w.loop
	late := w.inProcess() || l.now.Before(l.lateUntil)
	l.history.note(e, late, l.now)
	if l.fresh.note(e, late, l.now) {
		w.lastFreed.Store(max(w.lastFreed.Load(), e.Revision))
	}
}

// lostTrack is called where too much has happened to know where capacity was freed.
func (w *Pods) lostTrack() {
	revision := w.Ledger.Revision()
	w.loop.fresh.noteAll(w.Ledger, revision, w.loop.now)
	w.loop.history.noteAll(w.Ledger, revision, w.loop.now)
	w.lastFreed.Store(revision)
}
