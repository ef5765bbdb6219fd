package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// dump serves GET /debug/ledger: the whole account of this server, even where another server decides.
func (a *API) dump(q *query) (any, error) {
	if err := q.allOnly(); err != nil {
		return nil, err
	}
	answer := a.o.About()
	snapshot := a.o.Ledger.Snapshot()
	answer.Account = a.newSnapshot(snapshot.Revision, snapshot.Nodes, snapshot.Allocations, snapshot.Slots)
	return &answer, nil
}

// diffTime bounds one comparison: two lists of all pods, a page at a time.
const diffTime = 50 * time.Second

// diff serves GET /debug/diff.
func (a *API) diff(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	q.reader = a.readerOf(r.Context())
	if err := q.allOnly(); err != nil {
		return err
	}
	// It takes longer than other answers may. A writer that knows no deadlines, as in tests, has none to set.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(diffTime + 10*time.Second))
	answer, err := a.compare(r.Context())
	if err != nil {
		return err
	}
	return a.o.Intake.Send(w, r, httpjson.Encode(http.StatusOK, answer))
}

// compare compares for one request at a time, as each makes the API server list everything. It ends with the server.
func (a *API) compare(ctx context.Context) (*reserver.DiffAnswer, error) {
	if !a.comparing.TryLock() {
		return nil, httpjson.Errorf(http.StatusTooManyRequests,
			"the ledger is being compared for another request: ask again in a moment")
	}
	defer a.comparing.Unlock()
	ctx, stop := a.untilStopped(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, diffTime)
	defer cancel()
	answer, err := a.o.Diff(ctx)
	var refused *httpjson.Error
	if err != nil && !errors.As(err, &refused) {
		err = httpjson.Errorf(http.StatusServiceUnavailable, "the ledger could not be compared with the API server: %s", err)
	}
	return answer, err
}

// newSnapshot is an account, or part of it, as the wire has it.
func (a *API) newSnapshot(
	revision uint64, nodes []ledger.NodeView, allocations []ledger.AllocationView, slots []ledger.SlotView,
) reserver.WatchSnapshot {
	table := a.o.Ledger.Table()
	return reserver.WatchSnapshot{
		Instance: a.instance, Revision: revision, Nodes: listOf(nodes, newNode),
		Allocations: listOf(allocations, func(view *ledger.AllocationView) reserver.Allocation {
			return newAllocation(table, view)
		}),
		Slots: listOf(slots, func(view *ledger.SlotView) reserver.NodeSlot { return newNodeSlot(table, a.o.Clock, view) }),
	}
}
