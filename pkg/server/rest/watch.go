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
	// snapshotTime is how long a watcher may take to accept a snapshot, whose memory others wait for.
	snapshotTime = time.Minute
	// watchParts is how many host ports, devices and consumers are told at one time. A pod that is made with a node may
	// have as many ports as there are: a thousand such pods would be more than a watcher takes at once.
	watchParts = 20_000
)

// watch serves GET /v1/watch: every change of the ledger, from a revision on or from a snapshot on, as a
// server-sent event or, for clients that accept it, in batches (batch.go). It is for callers that may see all
// namespaces.
func (a *API) watch(w http.ResponseWriter, r *http.Request) error {
	revision, resume, err := a.watchFrom(r)
	if err != nil {
		return err
	}
	withRefusals, err := wantsRefusals(r)
	if err != nil {
		return err
	}
	reader := a.readerOf(r.Context())
	if err := reader.allOnly(); err != nil {
		return err
	}
	leave, err := a.watchers.Take(r.Context(), a.o.Intake.Caller(r), 1)
	if err != nil {
		w.Header().Set("Retry-After", "10")
		return httpjson.Errorf(http.StatusServiceUnavailable,
			"there are %d watchers already, and no place for one more of yours: close one, or try again later", a.watchers.Had())
	}
	defer leave()
	wake, cancel := a.o.Ledger.Subscribe() // before the first look, so that no change is missed
	defer cancel()
	refusals, end := a.feedRefusals(reader, withRefusals)
	defer end()
	conn := newConnection(r.Context(), w, a.o.Limits.WriteTimeout)
	defer conn.fail()
	s := a.sinkFor(r, conn)
	if resume {
		if _, ok := a.o.Ledger.EventsSince(nil, revision, 1); !ok {
			return expired(revision, a.o.Ledger.Revision())
		}
		s.begin()
	} else {
		snapshot, err := a.snapshot(r.Context(), a.o.Intake.Caller(r))
		if err != nil {
			return err
		}
		size := int64(len(snapshot.Nodes)+len(snapshot.Allocations)+len(snapshot.Slots)) * entrySize
		release, err := a.o.Intake.Hold(r.Context(), a.o.Intake.Caller(r), size)
		if err != nil {
			return err
		}
		defer release()
		late := time.AfterFunc(snapshotTime, conn.fail)
		s.begin()
		revision = a.sendSnapshot(s, snapshot)
		late.Stop()
		release()
	}
	a.followStream(s, revision, wake, refusals)
	return nil
}

// sinkFor returns what tells a watcher over HTTP, in the form that it accepts.
func (a *API) sinkFor(r *http.Request, conn *connection) watchSink {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if media, _, _ := strings.Cut(accepted, ";"); strings.TrimSpace(media) == reserver.BatchMediaType {
			return &batchStream{connection: conn, api: a}
		}
	}
	return &stream{connection: conn, api: a}
}

// followStream sends the changes after revision, and tells the client at the end
// if it has to start anew.
func (a *API) followStream(s watchSink, revision uint64, wake <-chan struct{}, refusals *refusalFeed) {
	if last, expired := a.follow(s, revision, wake, refusals); expired {
		s.expired(last)
	}
}

// watchFrom returns the revision to resume after, if the client named one. A
// browser's EventSource that reconnects sends Last-Event-ID, and the ?revision=
// it began with, which is older. Both may be the id of an event; that of another
// run of the server tells nothing of this one's revisions.
func (a *API) watchFrom(r *http.Request) (revision uint64, resume bool, err error) {
	q, err := readQuery(r, "revision", "refusals")
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
		"the changes after revision %d are not kept (the ledger is at revision %d): watch again without a revision, which "+
			"starts with a snapshot",
		asked, current)
}

// sink takes what a watch tells. Once its reader has gone it takes no notice.
type sink interface {
	// send adds an event; it may wait for the reader.
	send(e *reserver.Event)
	// flush makes sure that what was added is on its way.
	flush()
	// changes tells what came after a revision, as far as it goes at once, and up to which revision that is. ok is
	// false where the journal does not have that any more.
	changes(after uint64) (last uint64, ok bool)
	// gone is closed when the reader has gone.
	gone() <-chan struct{}
}

// watchSink is a sink over HTTP.
type watchSink interface {
	sink
	begin()
	// expired says, as the last thing, that changes after a revision are lost.
	expired(last uint64)
}

// snapshot returns the whole account, in its turn.
func (a *API) snapshot(ctx context.Context, caller string) (*ledger.Snapshot, error) {
	leave, err := a.o.Intake.Work(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer leave() // before anything is sent: the reader may not read
	snapshot := a.o.Ledger.Snapshot()
	return &snapshot, nil
}

// sendSnapshot sends the whole account, in parts. Only the last part has an ID:
// a reader that was cut off before it has nothing to resume from.
func (a *API) sendSnapshot(s sink, snapshot *ledger.Snapshot) (revision uint64) {
	nodes, allocations, slots := snapshot.Nodes, snapshot.Allocations, snapshot.Slots
	a.note()
	at := a.times.of(snapshot.Revision)
	for first, more := true, true; more; first = false {
		n := atOnce(len(nodes), snapshotBatch, func(i int) int { return len(nodes[i].Devices) + len(nodes[i].Labels) })
		c := atOnce(len(allocations), snapshotBatch, func(i int) int {
			return partsOf(allocations[i].Request,
				allocations[i].Given)
		})
		h := atOnce(len(slots), snapshotBatch, func(i int) int {
			return partsOf(slots[i].Request, slots[i].Given) +
				len(slots[i].Consumers)
		})
		part := a.newSnapshot(snapshot.Revision, nodes[:n], allocations[:c], slots[:h])
		nodes, allocations, slots = nodes[n:], allocations[c:], slots[h:]
		more = len(nodes)+len(allocations)+len(slots) > 0
		part.Time, part.More = at, more
		event := reserver.Event{Type: reserver.SnapshotEvent, Instance: a.instance, Time: at, First: first, Snapshot: &part}
		if !more {
			event.ID, event.Revision = reserver.EventID(a.instance, snapshot.Revision), snapshot.Revision
		}
		s.send(&event)
		s.flush()
	}
	return snapshot.Revision
}

// follow sends the changes after revision, and refusals to a reader that wants them, until the reader or the server
// ends it. expired tells that the journal has lost changes: the reader was too slow, and has been told
// no more than the changes up to last.
func (a *API) follow(s sink, revision uint64, wake <-chan struct{}, refusals *refusalFeed) (last uint64, expired bool) {
	heartbeat := time.NewTicker(a.o.Limits.Heartbeat)
	defer heartbeat.Stop()
	caughtUp := false
	for {
		select {
		case <-s.gone():
			return revision, false
		case <-a.o.Done:
			return revision, false
		default:
		}
		told, ok := s.changes(revision)
		if !ok {
			return revision, true
		}
		if refusals.tell(s) || told > revision {
			revision = told
			continue
		}
		if !caughtUp {
			caughtUp = true
			a.sendBookmark(s, revision)
		}
		select {
		case <-wake:
		case <-refusals.wake:
		case <-heartbeat.C:
			s.send(&reserver.Event{Type: reserver.HeartbeatEvent, Instance: a.instance})
			s.flush()
		case <-s.gone():
		case <-a.o.Done:
		}
	}
}

// sendBookmark says that all changes up to a revision have been told.
func (a *API) sendBookmark(s sink, revision uint64) {
	now := a.o.Clock.Wall().UTC().Truncate(time.Millisecond)
	s.send(&reserver.Event{
		Type: reserver.BookmarkEvent, ID: reserver.EventID(a.instance, revision), Instance: a.instance, Time: now,
		Revision: revision, Bookmark: &reserver.WatchBookmark{Instance: a.instance, Revision: revision, Time: now},
	})
	s.flush()
}

// eventsSince returns the changes after a revision that are told at one time, at most limit. into is memory for them.
func (a *API) eventsSince(into []ledger.Event, after uint64, limit int) (events []ledger.Event, ok bool) {
	events, ok = a.o.Ledger.EventsSince(into[:0], after, limit)
	a.note()
	return events[:atOnce(len(events), limit, func(i int) int {
		return partsOf(events[i].Request, events[i].Given) + len(events[i].NodeDevices) + len(events[i].Labels)
	})], ok
}

// atOnce returns how many of n entries are told at one time: at least one, at most so many, and no more than have
// watchParts parts together.
func atOnce(n, most int, parts func(i int) int) int {
	n = min(n, most)
	for i, sum := 0, 0; i < n; i++ {
		if sum += parts(i); sum > watchParts {
			return max(i, 1)
		}
	}
	return n
}

func partsOf(r *resources.Request, given []ledger.GivenDevices) (parts int) {
	if r != nil {
		parts = len(r.Ports)
	}
	for i := range given {
		parts += len(given[i].IDs)
	}
	return parts
}

// tellChanges tells the changes after a revision one by one. events is where they are kept meanwhile.
func (a *API) tellChanges(s sink, events []ledger.Event, after uint64) (kept []ledger.Event, last uint64, ok bool) {
	events, ok = a.eventsSince(events, after, watchBatch)
	if len(events) == 0 {
		return events, after, ok
	}
	for i := range events {
		var event reserver.Event
		a.tellEvent(&event, &events[i])
		s.send(&event)
	}
	s.flush()
	return events, events[len(events)-1].Revision, true
}

// tellEvent makes the empty event one that tells a change of the ledger.
func (a *API) tellEvent(event *reserver.Event, e *ledger.Event) {
	*event = reserver.Event{
		ID: reserver.EventID(a.instance, e.Revision), Instance: a.instance, Revision: e.Revision,
		Time: a.times.of(e.Revision),
	}
	table := a.o.Ledger.Table()
	switch e.Type {
	case ledger.SlotPlaced, ledger.SlotIdentified, ledger.SlotConsumed, ledger.SlotReleased, ledger.SlotExpired,
		ledger.SlotPreempted:
		event.Type, event.Slot = reserver.SlotEvent, newWatchSlot(table, a.o.Clock, e)
	case ledger.NodeUpdated, ledger.NodeLabeled, ledger.NodeRemoved, ledger.DevicesUpdated:
		event.Type = reserver.NodeEvent
		event.Node = &reserver.WatchNode{
			Revision: e.Revision, Type: string(e.Type),
			Node: reserver.WatchedNode{
				Name: e.Node, UID: string(e.NodeUID), Unschedulable: e.Unschedulable,
				Allocatable: requestAmounts(table, &resources.Request{Amounts: e.Allocatable}),
				Labels:      e.Labels, Pool: poolOf(e.Labels),
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
}

// newWatchSlot tells a change of a slot. Its consumers are not told: their
// allocations name it.
func newWatchSlot(table *resources.Table, c *steady.Clock, e *ledger.Event) *reserver.WatchSlot {
	view := ledger.SlotView{
		Slot: ledger.Slot{
			Ref: e.Slot, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Movable: e.Movable, Deadline: e.Deadline,
			AvailableAt: e.AvailableAt,
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
