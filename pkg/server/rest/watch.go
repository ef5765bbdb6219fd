package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

const (
	watchBatch    = 256   // changes sent at one time
	snapshotBatch = 1_000 // nodes or allocations in one snapshot event
	entrySize     = 512   // bytes of a node, allocation or slot in a snapshot, more or less
)

// watch serves GET /v1/watch: every change of the ledger as a server-sent event,
// from a revision on or from a snapshot on. It is for those who may see all namespaces.
func (a *API) watch(w http.ResponseWriter, r *http.Request) error {
	revision, resume, err := a.watchFrom(r)
	if err != nil {
		return err
	}
	if err := a.readerOf(r.Context()).allOnly(); err != nil {
		return err
	}
	leave, ok := a.watchers.take(a.intake.Caller(r), r.UserAgent())
	if !ok {
		w.Header().Set("Retry-After", "10")
		return httpjson.Errorf(http.StatusServiceUnavailable,
			"there are %d watchers already, and no place for one more of yours: close one, or try again later", a.watchers.open())
	}
	defer leave()
	wake, cancel := a.ledger.Subscribe() // before the first look, so that no change is missed
	defer cancel()
	s := newStream(r.Context(), w, a.limits.WriteTimeout)
	defer s.fail()
	if resume {
		if _, ok := a.ledger.EventsSince(nil, revision, 1); !ok {
			return expired(revision, a.ledger.Revision())
		}
		s.begin()
	} else {
		snapshot, err := a.snapshot(r.Context(), a.intake.Caller(r))
		if err != nil {
			return err
		}
		size := int64(len(snapshot.Nodes)+len(snapshot.Allocations)+len(snapshot.Slots)) * entrySize
		release, err := a.intake.Hold(r.Context(), a.intake.Caller(r), size, s.cutOff)
		if err != nil {
			return err
		}
		defer release()
		s.begin()
		revision = a.sendSnapshot(s, snapshot)
		release()
	}
	a.followStream(s, revision, wake)
	return nil
}

// followStream sends the changes after revision, and tells the client at the end
// if it has to start anew.
func (a *API) followStream(s *stream, revision uint64, wake <-chan struct{}) {
	if last, expired := a.follow(s, revision, wake); expired {
		s.event("expired", "", &reserver.WatchBookmark{Instance: a.instance, Revision: last})
		s.flush()
	}
}

// watchFrom returns the revision to resume after, if the client named one. A
// browser's EventSource that reconnects sends Last-Event-ID, and the ?revision=
// it began with, which is older. Both may be the id of an event; that of another
// run of the server tells nothing of this one's revisions.
func (a *API) watchFrom(r *http.Request) (revision uint64, resume bool, err error) {
	q, err := readQuery(r, "revision")
	if err != nil {
		return 0, false, err
	}
	name, text := "revision", q.Get("revision")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		name, text = "Last-Event-ID", last
	}
	if text == "" {
		return 0, false, nil
	}
	instance, digits, isID := strings.Cut(text, "-")
	if !isID {
		digits = text
	}
	revision, err = strconv.ParseUint(digits, 10, 64)
	if err != nil || (isID && instance == "") {
		return 0, false, badRequest("%s \"%s\" is not a revision: send the Revision of an answer, or the id of an event",
			name, httpjson.Clip(text))
	}
	if isID && instance != a.instance {
		return 0, false, httpjson.Errorf(http.StatusGone,
			"%s \"%s\" is of another run of the server: watch again without a revision, which starts with a snapshot",
			name, httpjson.Clip(text))
	}
	return revision, true, nil
}

func expired(asked, current uint64) error {
	return httpjson.Errorf(http.StatusGone,
		"the changes after revision %d are not kept (the ledger is at revision %d): watch again without a revision, which starts with a snapshot",
		asked, current)
}

// sink takes what a watch tells. Once its reader has gone it takes no notice.
type sink interface {
	// send adds an event; it may wait for the reader.
	send(e *reserver.Event)
	// flush makes sure that what was added is on its way.
	flush()
	// gone is closed when the reader has gone.
	gone() <-chan struct{}
}

// snapshot returns the whole account, in its turn.
func (a *API) snapshot(ctx context.Context, caller string) (*ledger.Snapshot, error) {
	leave, err := a.intake.Work(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer leave() // before anything is sent: the reader may not read
	snapshot := a.ledger.Snapshot()
	return &snapshot, nil
}

// sendSnapshot sends the whole account, in parts. Only the last part has an ID:
// a reader that was cut off before it has nothing to resume from.
func (a *API) sendSnapshot(s sink, snapshot *ledger.Snapshot) (revision uint64) {
	nodes, allocations, slots := snapshot.Nodes, snapshot.Allocations, snapshot.Slots
	for first, more := true, true; more; first = false {
		n, c, h := min(len(nodes), snapshotBatch), min(len(allocations), snapshotBatch), min(len(slots), snapshotBatch)
		part := a.newSnapshot(snapshot.Revision, nodes[:n], allocations[:c], slots[:h])
		nodes, allocations, slots = nodes[n:], allocations[c:], slots[h:]
		more = len(nodes)+len(allocations)+len(slots) > 0
		part.More = more
		event := reserver.Event{Type: reserver.SnapshotEvent, Instance: a.instance, First: first, Snapshot: &part}
		if !more {
			event.ID, event.Revision = reserver.EventID(a.instance, snapshot.Revision), snapshot.Revision
		}
		s.send(&event)
		s.flush()
	}
	return snapshot.Revision
}

// follow sends the changes after revision until the reader or the server ends it.
// expired tells that the journal does: the reader was too slow, and has been told
// no more than the changes up to last.
func (a *API) follow(s sink, revision uint64, wake <-chan struct{}) (last uint64, expired bool) {
	heartbeat := time.NewTicker(a.limits.Heartbeat)
	defer heartbeat.Stop()
	events := make([]ledger.Event, 0, watchBatch)
	caughtUp := false
	for {
		select {
		case <-s.gone():
			return revision, false
		case <-a.done:
			return revision, false
		default:
		}
		var ok bool
		if events, ok = a.ledger.EventsSince(events[:0], revision, watchBatch); !ok {
			return revision, true
		}
		if len(events) > 0 {
			for i := range events {
				s.send(a.newEvent(&events[i]))
			}
			revision = events[len(events)-1].Revision
			s.flush()
			continue
		}
		if !caughtUp {
			caughtUp = true
			s.send(&reserver.Event{
				Type: reserver.BookmarkEvent, ID: reserver.EventID(a.instance, revision), Instance: a.instance,
				Revision: revision, Bookmark: &reserver.WatchBookmark{Instance: a.instance, Revision: revision},
			})
			s.flush()
		}
		select {
		case <-wake:
		case <-heartbeat.C:
			s.send(&reserver.Event{Type: reserver.HeartbeatEvent, Instance: a.instance})
			s.flush()
		case <-s.gone():
		case <-a.done:
		}
	}
}

// newEvent tells a change of the ledger.
func (a *API) newEvent(e *ledger.Event) *reserver.Event {
	event := &reserver.Event{ID: reserver.EventID(a.instance, e.Revision), Instance: a.instance, Revision: e.Revision}
	table := a.ledger.Table()
	switch e.Type {
	case ledger.SlotPlaced, ledger.SlotIdentified, ledger.SlotConsumed, ledger.SlotReleased, ledger.SlotExpired, ledger.SlotPreempted:
		event.Type, event.Slot = reserver.SlotEvent, newWatchSlot(table, a.clock, e)
	case ledger.NodeUpdated, ledger.NodeRemoved, ledger.DevicesUpdated:
		event.Type = reserver.NodeEvent
		event.Node = &reserver.WatchNode{
			Revision: e.Revision, Type: string(e.Type),
			Node: reserver.WatchedNode{
				Name: e.Node, UID: string(e.NodeUID), Unschedulable: e.Unschedulable,
				Allocatable: requestAmounts(table, &resources.Request{Amounts: e.Allocatable}),
			},
		}
		for i := range e.NodeDevices {
			event.Node.Node.Devices = append(event.Node.Node.Devices, newDevice(&e.NodeDevices[i]))
		}
	default:
		view := ledger.AllocationView{
			Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler, Priority: e.Priority,
			Request: e.Request, Slot: e.Slot, Given: e.Given,
		}
		event.Type = reserver.AllocationEvent
		event.Allocation = &reserver.WatchAllocation{
			Revision: e.Revision, Type: string(e.Type), Allocation: newAllocation(table, &view), MovedFrom: e.MovedFrom,
		}
	}
	return event
}

// newWatchSlot tells a change of a slot. Its consumers are not told: their
// allocations name it.
func newWatchSlot(table *resources.Table, c *steady.Clock, e *ledger.Event) *reserver.WatchSlot {
	view := ledger.SlotView{
		Slot: ledger.Slot{
			Ref: e.Slot, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Deadline: e.Deadline,
		},
		Rest: e.Request, Given: e.Given, Overdue: e.Overdue, Within: e.Within,
	}
	event := &reserver.WatchSlot{Revision: e.Revision, Type: string(e.Type)}
	switch e.Type {
	case ledger.SlotConsumed, ledger.SlotPreempted:
		event.By = &reserver.PodName{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: string(e.Pod.UID)}
	default:
		view.Pod = e.Pod
	}
	event.Slot = newNodeSlot(table, c, &view)
	return event
}
