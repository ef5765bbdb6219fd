package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Who knows a revision from before has to start anew: what happened up to the new one is not in the journal.
func TestAdvance(t *testing.T) {
	l := ledger.New(ledger.Options{FirstRevision: 10, JournalSize: 8})
	l.ObserveNode(offer("a", 4000, 1<<30, 110))
	require.EqualValues(t, 11, l.Revision())
	l.Advance(11)
	events, ok := l.EventsSince(nil, 10, 9)
	assert.True(t, ok && len(events) == 1, "it was there already")

	l.Advance(13)
	require.EqualValues(t, 13, l.Revision())
	for _, before := range []uint64{10, 11, 12} {
		_, ok = l.EventsSince(nil, before, 9)
		assert.False(t, ok, "%d", before)
	}
	l.RemoveNode("a")
	events, ok = l.EventsSince(nil, 13, 9)
	require.True(t, ok)
	require.Len(t, events, 1)
	assert.Equal(t, ledger.NodeRemoved, events[0].Type)
	assert.EqualValues(t, 14, events[0].Revision)
}

// A pod is bound by its name alone, and what is kept beside it names its UID: who follows the journal hears of the UID
// before the slot turns into the allocation, and drops the slot.
func TestUIDFromWhatIsKeptBesideABind(t *testing.T) {
	l := ledger.New(ledger.Options{JournalSize: 8})
	l.ObserveNode(offer("a", 4000, 1<<30, 110))
	pod := podRef("p")
	byName := ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name}
	slot := ledger.Slot{Pod: byName, Node: "a", Request: request(1000, 0)}
	require.Equal(t, 1, l.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, time.Time{}).Granted)
	from := l.Revision()

	kept := ledger.Slot{Pod: pod, Request: request(1000, 0)}
	_, rejection := l.StartBindWith(&ledger.Placement{Pod: byName, Node: "a", Request: request(1000, 0)},
		&ledger.Exchange{Keep: []ledger.Choice{{Slots: []ledger.Slot{kept}, Nodes: []string{"a"}}}}, time.Time{})
	require.Nil(t, rejection)
	events, ok := l.EventsSince(nil, from, 8)
	require.True(t, ok)
	require.Len(t, events, 2)
	assert.Equal(t, ledger.SlotIdentified, events[0].Type)
	assert.Equal(t, ledger.AllocationBinding, events[1].Type)
	assert.Equal(t, pod, events[1].Pod)
}
