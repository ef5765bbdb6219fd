package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What is kept for pods takes slots of reservations before free capacity, those that a pod is meant for first. Where
// pods ask for different amounts, none takes a slot that another one needs.
func TestKeptWithinReservations(t *testing.T) {
	small, large := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "small"}, ledger.SlotRef{
		Namespace: "ns",
		Name:      "r", Slot: "large",
	}
	keep := func(name string, cpu int64, node string) ledger.Slot {
		return ledger.Slot{
			Pod: podRef(name), Node: node, Request: request(cpu, 0), Slots: []ledger.SlotRef{small, large}, Movable: true,
			Deadline: start.Add(time.Hour),
		}
	}
	both := []string{"node-0", "node-1"}
	for name, tc := range map[string]struct {
		keep []ledger.Choice
		want map[string]ledger.SlotRef
	}{
		"alike": {
			[]ledger.Choice{{Slots: []ledger.Slot{keep("a", 1, ""), keep("b", 1, "")}, Nodes: both}},
			map[string]ledger.SlotRef{"a": small, "b": large},
		},
		"meant for one": {
			[]ledger.Choice{{Slots: []ledger.Slot{keep("a", 1, "node-1"), keep("b", 1, "")}, Nodes: both}},
			map[string]ledger.SlotRef{"a": large, "b": small},
		},
		"the second is meant for the first": {
			[]ledger.Choice{{Slots: []ledger.Slot{keep("a", 1, ""), keep("b", 1, "node-0")}, Nodes: both}},
			map[string]ledger.SlotRef{"a": large, "b": small},
		},
		"mixed": {
			[]ledger.Choice{
				{Slots: []ledger.Slot{keep("a", 1, ""), keep("b", 1, "")}, Nodes: both},
				{Slots: []ledger.Slot{keep("c", 3, "")}, Nodes: both},
			},
			map[string]ledger.SlotRef{"a": small, "b": {}, "c": large},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(2, 3, 100, 110)
			require.Equal(t, 2, l.Reserve(ledger.Plan{Slots: []ledger.Slot{
				{Ref: small, Node: "node-0", Request: request(1, 0), Policy: ledger.Once},
				{Ref: large, Node: "node-1", Request: request(3, 0), Policy: ledger.Once},
			}}, start).Granted)
			require.Nil(t, l.Exchange(&ledger.Exchange{Keep: tc.keep}, start))
			for pod, want := range tc.want {
				kept, ok := l.InMemory(podRef(pod))
				require.True(t, ok, pod)
				assert.Equal(t, want, kept.Within, pod)
			}
		})
	}
}

// A bind that names no UID is of the pod that something is kept for, also as a trial: the slots of others of the name
// are not used.
func TestGrantOfPodByName(t *testing.T) {
	l := newLedger(2, 3, 100, 110)
	pod := podRef("p")
	other := pod
	other.UID = "another"
	require.Nil(t, l.Exchange(&ledger.Exchange{Keep: []ledger.Choice{{Nodes: []string{"node-0"}, Slots: []ledger.Slot{{
		Pod: pod, Request: request(1, 0), Movable: true, Deadline: start.Add(time.Hour),
	}}}}}, start))
	require.Equal(t, 1, l.Reserve(ledger.Plan{Slots: []ledger.Slot{{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "a"}, Node: "node-1", Request: request(1, 0), Pod: other,
	}}}, start).Granted)
	byName := ledger.Placement{
		Pod: ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name}, Node: "node-1", Request: request(1, 0),
	}
	var foreseen ledger.Grant
	l.Try(func(t *ledger.Trial) { foreseen = t.Grant(&byName) })
	granted, refused := l.StartBind(&byName, start)
	require.Nil(t, refused)
	assert.Equal(t, granted, foreseen)
	assert.Empty(t, granted.Slot)
}
