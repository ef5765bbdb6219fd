package arbiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// offer lets all pods of the namespace use the slot of capacityRef.
func (w *world) offer(change func(*v1alpha1.Reservation)) {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: capacityRef.Namespace, Name: capacityRef.Name},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: capacityRef.Slot}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}},
		},
	}
	if change != nil {
		change(rsv)
	}
	require.NoError(w.t, w.question.Matcher.Set(rsv))
}

var capacityRef = ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}

// slot keeps so many CPUs of node a.
func slot(cpus int64) ledger.Slot {
	return ledger.Slot{Ref: capacityRef, Node: "a", Policy: ledger.Once, Request: placementtest.Request(1000 * cpus)}
}

func TestBindWithSlots(t *testing.T) {
	const ours, godels = "globalreserve.io/matched-reservation", "godel.bytedance.com/matched-reservation-placeholder"
	annotated := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	type reservation = v1alpha1.Reservation
	open := func(*reservation) {}
	uid := func(r *reservation) { r.UID = "7" }
	godel := func(r *reservation) { r.Annotations = map[string]string{v1alpha1.GodelReservationAnnotation: "true"} }
	type testCase struct {
		node    string
		offer   func(*reservation) // nil: nobody may use it
		pod     func(*v1.Pod)
		reply   reply
		outcome gates.Outcome
		want    map[string]string
		holds   int // afterwards
	}
	tests := map[string]testCase{
		"its slot":        {"a", open, nil, honest, gates.Bound, map[string]string{ours: "ns/r/s"}, 0},
		"nobody else's":   {"a", nil, nil, honest, gates.Refused, nil, 1},
		"not on its node": {"b", open, nil, honest, gates.Bound, nil, 1},
		"the bind fails":  {"a", open, nil, reply{err: errForbidden}, gates.Failed, map[string]string{ours: "ns/r/s"}, 1},
		"a Gödel pod": {
			"a", open, annotated("godel.bytedance.com/reservation-index", "i"), honest, gates.Bound,
			map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"},
			0,
		},
		"an object": {"a", uid, nil, honest, gates.Bound, map[string]string{ours: "ns/r/s", ours + "-uid": "7"}, 0},
		"Gödel reservation": {
			"a", godel, nil, honest, gates.Bound,
			map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"},
			0,
		},
		"a copied pod": {"b", nil, annotated(ours, "ns/old/s"), honest, gates.Bound, map[string]string{ours: ""}, 1},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		p := newPod("p")
		if tt.pod != nil {
			tt.pod(p)
		}
		w := newWorld(t, p)
		if tt.offer != nil {
			w.offer(tt.offer)
		}
		require.True(t, w.ledger.ObserveSlot(slot(4)))
		var sent map[string]string
		w.api.onBind = func(b *v1.Binding) {
			sent = b.Annotations
			if delete(sent, v1alpha1.CallerAnnotation); len(sent) == 0 {
				sent = nil
			}
		}
		w.api.bind = func(int) reply { return tt.reply }
		err := w.bindPod(p, tt.node)
		if tt.outcome == gates.Bound {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, &gates.Error{Outcome: tt.outcome})
		}
		assert.Equal(t, tt.want, sent)
		assert.Equal(t, tt.holds, w.ledger.Stats().Slots)
	})
}
