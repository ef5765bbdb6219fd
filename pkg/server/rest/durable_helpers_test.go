package rest

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
)

var (
	errForbidden = apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
	errTooMany   = apierrors.NewTooManyRequests("later", 1)
	errInternal  = apierrors.NewInternalError(errors.New("storage"))
	errLost      = errors.New("connection lost")
)

// fate is what becomes of a request to the API server.
type fate = storetest.Fate

// restart is a new server on the objects that are there. The ledger stays: it
// is what a start would make of them, and forget drops what is in memory only.
func (d *fixture) restart() {
	d.stop()
	d.start(Limits{})
}

// forget makes the ledger what a start would make of the objects.
func (d *fixture) forget() {
	views, _ := d.ledger.Slots()
	for _, view := range views {
		d.ledger.ReleaseSlots(view.Ref.Namespace, view.Ref.Name, view.Ref.Slot)
	}
	for _, object := range d.Store.All() {
		slots, err := convert.GrantedSlots(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range slots {
			d.ledger.ObserveSlot(slots[i])
		}
	}
}

// slots lists the slots of the ledger as namespace/name/slot@node.
func (d *fixture) slots() []string {
	views, _ := d.ledger.Slots()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String()+"@"+views[i].Node)
	}
	return list
}

// written lists what the objects say is held, in the same form.
func (d *fixture) written() []string {
	list := []string{}
	for _, object := range d.Store.All() {
		slots, err := convert.GrantedSlots(d.ledger.Table(), object)
		require.NoError(d.t, err)
		for i := range slots {
			list = append(list, slots[i].Ref.String()+"@"+slots[i].Node)
		}
	}
	slices.Sort(list)
	return list
}
