package restapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	watchBatch    = 256   // changes sent at one time
	snapshotBatch = 1_000 // nodes or claims in one snapshot event
)

// watch serves GET /v1/watch: every change of the ledger as a server-sent event,
// from a revision on or from a snapshot on.
func (a *API) watch(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	revision, resume, err := a.watchFrom(r)
	if err != nil {
		return err
	}
	if a.watchers.Add(1) > int64(a.limits.MaxWatchers) {
		a.watchers.Add(-1)
		return httpjson.Errorf(http.StatusServiceUnavailable,
			"there are %d watchers already, the most this server allows: close one, or try again later", a.limits.MaxWatchers)
	}
	defer a.watchers.Add(-1)
	wake, cancel := a.ledger.Subscribe() // before the first look, so that no change is missed
	defer cancel()
	s := newStream(w, a.instance, a.limits.WriteTimeout)
	if resume {
		if _, ok := a.ledger.EventsSince(nil, revision, 1); !ok {
			return expired(revision, a.ledger.Revision())
		}
		s.begin()
	} else if revision, err = a.sendSnapshot(s, r); err != nil {
		return err
	}
	a.follow(s, r, revision, wake)
	return nil
}

// watchFrom returns the revision to resume after, if the client named one. A
// browser's EventSource that reconnects sends Last-Event-ID, and the ?revision=
// it began with, which is older. Both may be the id of an event; that of another
// run of the server tells nothing of this one's revisions.
func (a *API) watchFrom(r *http.Request) (revision uint64, resume bool, err error) {
	values, err := query(r, "revision")
	if err != nil {
		return 0, false, err
	}
	name, text := "revision", values.Get("revision")
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

// sendSnapshot sends the whole account, in parts. Only the last part has an id:
// a client that was cut off before it has nothing to resume from.
func (a *API) sendSnapshot(s *stream, r *http.Request) (revision uint64, err error) {
	release, err := a.turn(r, a.reads, 1)
	if err != nil {
		return 0, err
	}
	snapshot := a.ledger.Snapshot()
	release() // before anything is sent: the client may not read
	s.begin()
	nodes, claims, holds := snapshot.Nodes, snapshot.Claims, snapshot.Holds
	for more := true; more; {
		n, c, h := min(len(nodes), snapshotBatch), min(len(claims), snapshotBatch), min(len(holds), snapshotBatch)
		part := reserver.WatchSnapshot{
			Instance: a.instance, Revision: snapshot.Revision, Nodes: make([]reserver.Node, 0, n), Claims: make([]reserver.Claim, 0, c), Slots: make([]reserver.NodeSlot, 0, h),
		}
		for i := range nodes[:n] {
			part.Nodes = append(part.Nodes, newNode(&nodes[i]))
		}
		for i := range claims[:c] {
			part.Claims = append(part.Claims, newClaim(a.ledger.Table(), &claims[i]))
		}
		for i := range holds[:h] {
			part.Slots = append(part.Slots, newNodeSlot(a.ledger.Table(), &holds[i]))
		}
		nodes, claims, holds = nodes[n:], claims[c:], holds[h:]
		more = len(nodes)+len(claims)+len(holds) > 0
		part.More = more
		if more {
			s.event("snapshot", noID, &part)
		} else {
			s.event("snapshot", snapshot.Revision, &part)
		}
		s.flush()
	}
	return snapshot.Revision, nil
}

// follow sends the changes after revision until the client, the server or the
// journal ends it.
func (a *API) follow(s *stream, r *http.Request, revision uint64, wake <-chan struct{}) {
	heartbeat := a.clock.NewTicker(a.limits.Heartbeat)
	defer heartbeat.Stop()
	events := make([]ledger.Event, 0, watchBatch)
	caughtUp := false
	for s.err == nil {
		var ok bool
		if events, ok = a.ledger.EventsSince(events[:0], revision, watchBatch); !ok {
			s.event("expired", noID, &reserver.WatchBookmark{Instance: a.instance, Revision: revision})
			s.flush()
			return
		}
		if len(events) > 0 {
			for i := range events {
				a.sendEvent(s, &events[i])
			}
			revision = events[len(events)-1].Revision
			s.flush()
			continue
		}
		if !caughtUp {
			caughtUp = true
			s.event("bookmark", revision, &reserver.WatchBookmark{Instance: a.instance, Revision: revision})
			s.flush()
		}
		select {
		case <-wake:
		case <-heartbeat.C():
			s.comment("heartbeat")
			s.flush()
		case <-r.Context().Done():
			return
		case <-a.done:
			return
		}
	}
}

func (a *API) sendEvent(s *stream, e *ledger.Event) {
	table := a.ledger.Table()
	switch e.Type {
	case ledger.HoldPlaced, ledger.HoldConsumed, ledger.HoldReleased, ledger.HoldExpired, ledger.HoldPreempted:
		a.sendSlotEvent(s, e)
		return
	case ledger.NodeUpdated, ledger.NodeRemoved:
		s.event("node", e.Revision, &reserver.WatchNode{
			Revision: e.Revision, Type: string(e.Type),
			Node: reserver.WatchedNode{
				Name: e.Node, UID: string(e.NodeUID), Unschedulable: e.Unschedulable,
				Allocatable: requestAmounts(table, &resources.Request{Amounts: e.Allocatable}),
			},
		})
		return
	}
	view := ledger.ClaimView{
		Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler, Priority: e.Priority,
		Request: e.Request, Deadline: e.Deadline, Hold: e.Hold,
	}
	s.event("claim", e.Revision, &reserver.WatchClaim{
		Revision: e.Revision, Type: string(e.Type), Claim: newClaim(table, &view), MovedFrom: e.MovedFrom,
	})
}

// sendSlotEvent sends a change of a hold. Its consumers are not told: their
// claims name it.
func (a *API) sendSlotEvent(s *stream, e *ledger.Event) {
	view := ledger.HoldView{
		Hold: ledger.Hold{
			Ref: e.Hold, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Deadline: e.Deadline,
		},
		Rest: e.Request,
	}
	event := &reserver.WatchSlot{Revision: e.Revision, Type: string(e.Type)}
	switch e.Type {
	case ledger.HoldConsumed, ledger.HoldPreempted:
		event.By = &reserver.PodName{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: string(e.Pod.UID)}
	default:
		view.Pod = e.Pod
	}
	event.Slot = newNodeSlot(a.ledger.Table(), &view)
	s.event("slot", e.Revision, event)
}
