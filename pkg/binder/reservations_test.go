package binder

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// offers lets every pod use the same holds.
type offers struct {
	holds []ledger.HoldRef
	godel bool
	uid   types.UID
}

func (o offers) Candidates(*podinfo.Info) []ledger.HoldRef { return o.holds }
func (o offers) Origin(_, name string) podinfo.Origin {
	return podinfo.Origin{Godel: o.godel && name == "r", UID: o.uid}
}

var roomRef = ledger.HoldRef{Namespace: "ns", Name: "r", Slot: "s"}

// hold keeps so many CPUs of node a.
func hold(cpus int64) ledger.Hold {
	return ledger.Hold{Ref: roomRef, Node: "a", Policy: ledger.Once, Request: &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: 1000 * cpus}, {Column: resources.Pods, Value: 1},
	}}}
}

func TestBindWithHolds(t *testing.T) {
	const ours, godels = "globalreserve.io/matched-reservation", "godel.bytedance.com/matched-reservation-placeholder"
	annotated := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	tests := map[string]struct {
		node    string
		offers  offers
		pod     func(*v1.Pod)
		reply   reply
		outcome Outcome
		want    map[string]string
		holds   int // afterwards
	}{
		"its hold":          {"a", offers{holds: []ledger.HoldRef{roomRef}}, nil, honest, Bound, map[string]string{ours: "ns/r/s"}, 0},
		"nobody else's":     {"a", offers{}, nil, honest, Refused, nil, 1},
		"not on its node":   {"b", offers{holds: []ledger.HoldRef{roomRef}}, nil, honest, Bound, nil, 1},
		"the bind fails":    {"a", offers{holds: []ledger.HoldRef{roomRef}}, nil, reply{err: errForbidden}, Failed, map[string]string{ours: "ns/r/s"}, 1},
		"a Gödel pod":       {"a", offers{holds: []ledger.HoldRef{roomRef}}, annotated("godel.bytedance.com/reservation-index", "i"), honest, Bound, map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"}, 0},
		"an object":         {"a", offers{holds: []ledger.HoldRef{roomRef}, uid: "7"}, nil, honest, Bound, map[string]string{ours: "ns/r/s", ours + "-uid": "7"}, 0},
		"Gödel reservation": {"a", offers{holds: []ledger.HoldRef{roomRef}, godel: true}, nil, honest, Bound, map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"}, 0},
		"a copied pod":      {"b", offers{}, annotated(ours, "ns/old/s"), honest, Bound, map[string]string{ours: ""}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod("p")
				if tt.pod != nil {
					tt.pod(p)
				}
				w := newWorld(t, p)
				w.Binder = w.newBinder(Options{Reservations: tt.offers})
				require.True(t, w.ledger.ObserveHold(hold(4)))
				var sent map[string]string
				w.api.onBind = func(b *v1.Binding) { sent = b.Annotations }
				w.api.bind = script(tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply, tt.reply)
				err := w.bindPod(p, tt.node)
				if tt.outcome == Bound {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, &Error{Outcome: tt.outcome})
				}
				assert.Equal(t, tt.want, sent)
				assert.Equal(t, tt.holds, w.ledger.Stats().Holds)
				w.end()
			})
		})
	}
}

func TestBindPreemptsOnlyWhereAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		p.Spec.Priority = new(int32)
		*p.Spec.Priority = 10
		w := newWorld(t, p)
		preemptors := NewPreemptors(10)
		w.Binder = w.newBinder(Options{Preemptors: preemptors})
		room := hold(4)
		room.Preemptible = true
		require.True(t, w.ledger.ObserveHold(room))
		require.ErrorIs(t, w.bindPod(p, "a"), &Error{Outcome: Refused})
		assert.Equal(t, 1, w.ledger.Stats().Holds)
		preemptors.Allow(p.UID)
		require.NoError(t, w.bindPod(p, "a"))
		assert.Zero(t, w.ledger.Stats().Holds)
		assert.False(t, preemptors.Allowed(p.UID), "once is enough")
		w.end()
	})
}

func TestPreemptors(t *testing.T) {
	p := NewPreemptors(2)
	for _, pod := range []types.UID{"a", "b", "c", "c"} {
		p.Looked(pod)
	}
	assert.Len(t, p.pods, 2)
	assert.Equal(t, 3, p.Looked("c"))
	assert.False(t, p.Allowed("c"))
	p.Allow("c")
	assert.True(t, p.Allowed("c"))
	p.Withdraw("c")
	p.Withdraw("none")
	assert.False(t, p.Allowed("c"))
	assert.Equal(t, 1, p.Looked("c"))
}
