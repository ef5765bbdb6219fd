package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

const (
	watchBatch    = 256   // changes sent at one time
	snapshotBatch = 1_000 // nodes or allocations in one line of a snapshot
	entrySize     = 512   // bytes of a node, allocation or slot in a snapshot, more or less
	// snapshotTime is how long a watcher may take to accept a snapshot, whose memory others wait for.
	snapshotTime = time.Minute
	// watchParts is how many host ports, devices and consumers are sent at one time. A pod that is made with a node may
	// have as many ports as there are: a thousand such pods would be more than a watcher takes at once.
	watchParts = 20_000
)

// watch serves GET /v1/watch: every change of the ledger, from a revision on or from a snapshot on, in lines of
// reserver.WatchBatch. It is for callers that may see all namespaces.
func (a *API) watch(w http.ResponseWriter, r *http.Request) error {
	revision, resume, err := a.watchFrom(r)
	if err != nil {
		return err
	}
	if err := a.readerOf(r.Context()).allOnly(); err != nil {
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
	s := a.newStream(r.Context(), w)
	defer s.fail()
	if resume {
		if _, ok := a.o.Ledger.EventsSince(nil, revision, 1); !ok {
			return expired(revision, a.o.Ledger.Revision())
		}
		s.begin()
	} else if revision, err = a.beginWithSnapshot(s, r); err != nil {
		return err
	}
	s.follow(revision, wake)
	return nil
}

// beginWithSnapshot begins a stream with the whole account, and returns the revision of that.
func (a *API) beginWithSnapshot(s *stream, r *http.Request) (revision uint64, err error) {
	snapshot, err := a.snapshot(r.Context(), a.o.Intake.Caller(r))
	if err != nil {
		return 0, err
	}
	size := int64(len(snapshot.Nodes)+len(snapshot.Allocations)+len(snapshot.Slots)) * entrySize
	release, err := a.o.Intake.Hold(r.Context(), a.o.Intake.Caller(r), size)
	if err != nil {
		return 0, err
	}
	defer release()
	late := time.AfterFunc(snapshotTime, s.fail)
	defer late.Stop()
	s.begin()
	return s.sendSnapshot(snapshot), nil
}

// watchFrom returns the revision to resume after, if the client named one. "Instance-Revision" names one of a certain
// run of the server: it says nothing about the revisions of another run.
func (a *API) watchFrom(r *http.Request) (revision uint64, resume bool, err error) {
	q, err := readQuery(r, "revision")
	if err != nil {
		return 0, false, err
	}
	text := q.Get("revision")
	if text == "" {
		return 0, false, nil
	}
	instance, digits, named := strings.Cut(text, "-")
	if !named {
		digits = text
	}
	revision, err = strconv.ParseUint(digits, 10, 64)
	if err != nil || (named && instance == "") {
		return 0, false, badRequest("revision \"%s\" is not a revision: send the Revision of an answer, or its Instance, a "+
			"dash and that", httpjson.Clip(text))
	}
	if named && instance != a.instance {
		return 0, false, httpjson.Errorf(http.StatusGone,
			"revision \"%s\" is of another run of the server: watch again without a revision, which starts with a snapshot",
			httpjson.Clip(text))
	}
	return revision, true, nil
}

func expired(asked, current uint64) error {
	return httpjson.Errorf(http.StatusGone,
		"the changes after revision %d are not kept (the ledger is at revision %d): watch again without a revision, which "+
			"starts with a snapshot",
		asked, current)
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

// sendSnapshot sends the whole account, in parts. Only the last part has a Revision: a reader that was cut off before
// it has nothing to resume from.
func (s *stream) sendSnapshot(snapshot *ledger.Snapshot) (revision uint64) {
	a := s.api
	nodes, allocations, slots := snapshot.Nodes, snapshot.Allocations, snapshot.Slots
	at := a.o.Clock.Wall().UTC().Truncate(time.Millisecond)
	for more := true; more; {
		n := atOnce(len(nodes), snapshotBatch, func(i int) int { return len(nodes[i].Devices) + len(nodes[i].Labels) })
		c := atOnce(len(allocations), snapshotBatch, func(i int) int {
			return partsOf(allocations[i].Request, allocations[i].Given)
		})
		h := atOnce(len(slots), snapshotBatch, func(i int) int {
			return partsOf(slots[i].Request, slots[i].Given) + len(slots[i].Consumers)
		})
		part := a.newSnapshot(snapshot.Revision, nodes[:n], allocations[:c], slots[:h])
		nodes, allocations, slots = nodes[n:], allocations[c:], slots[h:]
		more = len(nodes)+len(allocations)+len(slots) > 0
		part.Time, part.More = at, more
		batch := reserver.WatchBatch{Instance: a.instance, Snapshot: &part}
		if !more {
			batch.Revision = snapshot.Revision
		}
		s.send(&batch)
	}
	return snapshot.Revision
}

// follow sends the changes after a revision until the reader or the server ends it. A reader that was too slow, so that
// the journal has lost changes, is notified of that at the end.
func (s *stream) follow(revision uint64, wake <-chan struct{}) {
	a := s.api
	heartbeat := time.NewTicker(a.heartbeat)
	defer heartbeat.Stop()
	caughtUp := false
	for s.ctx.Err() == nil && a.o.Serving.Err() == nil {
		last, ok := s.changes(revision)
		switch {
		case !ok:
			s.send(&reserver.WatchBatch{Instance: a.instance, Revision: revision, Expired: true})
			return
		case last > revision:
			revision = last
			continue
		case !caughtUp:
			caughtUp = true
			s.send(&reserver.WatchBatch{
				Instance: a.instance, Revision: revision, CaughtUp: true,
				Time: a.o.Clock.Wall().UTC().Truncate(time.Millisecond),
			})
		}
		select {
		case <-wake:
		case <-heartbeat.C:
			s.send(&reserver.WatchBatch{Instance: a.instance})
		case <-s.ctx.Done():
		}
	}
}

// eventsSince returns the changes after a revision that are sent at one time. into is memory for them.
func (a *API) eventsSince(into []ledger.Event, after uint64) (events []ledger.Event, ok bool) {
	events, ok = a.o.Ledger.EventsSince(into[:0], after, watchBatch)
	return events[:atOnce(len(events), watchBatch, func(i int) int {
		return partsOf(events[i].Request, events[i].Given) + len(events[i].NodeDevices) + len(events[i].Labels)
	})], ok
}

// atOnce returns how many of n entries are sent at one time: at least one, at most so many, and no more than have
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

// change is a change of the ledger as the wire has it.
func (a *API) change(e *ledger.Event) (change reserver.WatchChange) {
	table := a.o.Ledger.Table()
	switch e.Type {
	case ledger.SlotPlaced, ledger.SlotIdentified, ledger.SlotConsumed, ledger.SlotReleased, ledger.SlotExpired,
		ledger.SlotPreempted:
		change.Slot = newWatchSlot(table, a.o.Clock, e)
	case ledger.NodeUpdated, ledger.NodeLabeled, ledger.NodeRemoved, ledger.DevicesUpdated:
		change.Node = &reserver.WatchNode{
			Revision: e.Revision, Type: string(e.Type),
			Node: reserver.WatchedNode{
				Name: e.Node, UID: string(e.NodeUID), Unschedulable: e.Unschedulable,
				Allocatable: requestAmounts(table, &resources.Request{Amounts: e.Allocatable}),
				Labels:      e.Labels, Pool: poolOf(e.Labels), Devices: listOf(e.NodeDevices, newDevice),
			},
		}
	default:
		view := ledger.AllocationView{
			Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler, Priority: e.Priority,
			Request: e.Request, Slot: e.Slot, Given: e.Given,
		}
		change.Allocation = &reserver.WatchAllocation{
			Revision: e.Revision, Type: string(e.Type), Allocation: newAllocation(table, &view), MovedFrom: e.MovedFrom,
		}
	}
	return change
}

// newWatchSlot returns a change of a slot, without its consumers: their allocations name it.
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
		event.By = new(newPodName(&e.Pod))
	default:
		view.Pod = e.Pod
	}
	event.Slot = newNodeSlot(table, c, &view)
	return event
}
