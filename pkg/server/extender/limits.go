package extender

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

const (
	// spareNodes is how many more nodes a scheduler may name than twice those the
	// ledger knows: it may have heard of new ones first.
	spareNodes = 1000
	// freeBody is the length of bodies in bytes that need no room in the budget:
	// all connections of the server together cannot fill its memory with them. So
	// what schedulers ask of clusters of some hundred nodes never waits.
	freeBody = 64 << 10
	// budgetWait is how long a request waits for room in the budget: less than the
	// time after which kube-scheduler gives up on an extender (5 s).
	budgetWait = 3 * time.Second
)

// maxNodes is how many nodes a request may name.
func (e *Extender) maxNodes() int { return 2*e.o.Ledger.NodeCount() + spareNodes }

func tooManyNodes(limit int) error {
	return fmt.Errorf("more than %d nodes: send nodes of this cluster, each once", limit)
}

// newArgs returns args to decode a request into.
func (e *Extender) newArgs() *args {
	limit := e.maxNodes()
	return &args{Nodes: nodeList{limit: limit}, NodeNames: nodeNames{limit: limit}}
}

// newPreemptArgs does the same for preempt.
func (e *Extender) newPreemptArgs() *preemptArgs {
	a := &preemptArgs{}
	a.NodeNameToVictims.limit = e.maxNodes()
	a.NodeNameToMetaVictims.limit = e.maxNodes()
	return a
}

// byNode is a JSON object with a member for each of so many nodes at most.
type byNode[V any] struct {
	limit int
	nodes map[string]V // nil where there was no object
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (b *byNode[V]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	b.nodes = nil
	opening, err := dec.ReadToken()
	if err != nil || opening.Kind() == 'n' {
		return err
	}
	if opening.Kind() != '{' {
		return errors.New("want an object with a member for each node")
	}
	b.nodes = map[string]V{}
	for dec.PeekKind() != '}' {
		if len(b.nodes) == b.limit {
			return tooManyNodes(b.limit)
		}
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		node := name.String()
		var v V
		if err := json.UnmarshalDecode(dec, &v); err != nil {
			return err
		}
		b.nodes[node] = v
	}
	_, err = dec.ReadToken()
	return err
}

// budget bounds the bytes of request bodies that are worked on at one time.
type budget struct {
	size int64
	room *semaphore.Weighted
}

func newBudget(size int64) budget { return budget{size: size, room: semaphore.NewWeighted(size)} }

// within calls handle when there is room for the body of the request, which is
// taken for as long as limit where its length is not known. The room is kept
// until the answer is sent, because what was read is in memory for so long.
func (b budget) within(limit int64, handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		size := r.ContentLength
		if size >= 0 && size <= freeBody {
			return handle(w, r)
		}
		if size < 0 || size > limit {
			size = limit
		}
		size = min(size, b.size)
		ctx, cancel := context.WithTimeout(r.Context(), budgetWait)
		defer cancel()
		if err := b.room.Acquire(ctx, size); err != nil {
			return httpjson.Errorf(http.StatusServiceUnavailable,
				"the server is busy with other large requests: try again in a few seconds")
		}
		defer b.room.Release(size)
		return handle(w, r)
	}
}
