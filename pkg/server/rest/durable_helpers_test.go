package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

var (
	errForbidden = apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
	errTooMany   = apierrors.NewTooManyRequests("later", 1)
	errInternal  = apierrors.NewInternalError(errors.New("storage"))
	errLost      = errors.New("connection lost")
)

// fate is what becomes of a request to the API server.
type fate = storetest.Fate

// durable is an API in a cluster that knows Reservations, without a network: it may
// run in a bubble.
type durable struct {
	*fixture
	store   *storetest.Server
	handler http.Handler
}

func newDurable(t testing.TB) *durable {
	d := &durable{fixture: newBareFixture(t)}
	d.store = d.Store
	d.restart()
	t.Cleanup(func() {
		d.stop()
		d.store.Late.Wait()
		require.NoError(t, ledgertest.CheckInvariants(d.ledger.Reader))
	})
	return d
}

// restart is a new server on the objects that are there. The ledger stays: it
// is what a start would make of them, and forget drops what is in memory only.
func (d *durable) restart() {
	if d.api != nil {
		d.stop()
	}
	d.start(Limits{})
	d.handler = testRouter(d.api, d.log)
}

// forget makes the ledger what a start would make of the objects.
func (d *durable) forget() {
	views, _ := d.ledger.Slots()
	for _, view := range views {
		d.ledger.ReleaseSlots(view.Ref.Namespace, view.Ref.Name, view.Ref.Slot)
	}
	for _, object := range d.store.All() {
		slots, err := convert.GrantedSlots(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range slots {
			d.ledger.ObserveSlot(slots[i])
		}
	}
}

// serve sends a request.
func (d *durable) serve(path string, request any) *httptest.ResponseRecorder {
	data, err := json.Marshal(request)
	require.NoError(d.t, err)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(data)))
	return w
}

// ask sends a request and returns the status and what was answered.
func (d *durable) ask(path string, request any) (int, reserver.Answer) {
	w := d.serve(path, request)
	var answer reserver.Answer
	require.NoError(d.t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
	return w.Code, answer
}

// reserve sends a /reserve that is answered with 200.
func (d *durable) reserve(request body) reserver.Answer {
	d.t.Helper()
	code, answer := d.ask("/reserve", request)
	require.Equal(d.t, http.StatusOK, code, answer.Error)
	return answer
}

func (d *durable) unreserve(request body) reserver.Answer {
	d.t.Helper()
	code, answer := d.ask("/unreserve", request)
	require.Equal(d.t, http.StatusOK, code, answer.Error)
	return answer
}

// slots lists the slots of the ledger as namespace/name/slot@node.
func (d *durable) slots() []string {
	views, _ := d.ledger.Slots()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String()+"@"+views[i].Node)
	}
	return list
}

// written lists what the objects say is held, in the same form.
func (d *durable) written() []string {
	list := []string{}
	for _, object := range d.store.All() {
		slots, err := convert.GrantedSlots(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range slots {
			list = append(list, slots[i].Ref.String()+"@"+slots[i].Node)
		}
	}
	slices.Sort(list)
	return list
}
