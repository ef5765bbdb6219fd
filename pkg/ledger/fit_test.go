package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestManyCandidates: of however many slots a pod may use, the first that will do on the node is used.
func TestManyCandidates(t *testing.T) {
	l := newLedger(3, 100, 100, 110)
	var plan ledger.Plan
	var refs []ledger.SlotRef
	for i := range 30 {
		ref := ledger.SlotRef{Namespace: "ns", Name: "r", Slot: fmt.Sprintf("s-%02d", i)}
		refs = append(refs, ref)
		plan.Slots = append(plan.Slots, ledger.Slot{
			Ref: ref, Node: nodeName(i % 3), Request: request(10, 10),
			Policy: ledger.Once,
		})
	}
	require.Equal(t, 30, l.Reserve(plan, start).Granted)
	names := []string{nodeName(0), nodeName(1), nodeName(2)}
	for i := range 30 {
		p := ledger.Placement{Pod: podRef(fmt.Sprint(i)), Node: nodeName(i % 3), Request: request(10, 10), Slots: refs}
		backwards := p
		backwards.Slots = slices.Clone(refs)
		slices.Reverse(backwards.Slots)
		for _, ask := range []*ledger.Placement{&p, &backwards} {
			for k, v := range l.AppendFit(nil, ask, names) {
				left := i + (k-i%3+3)%3 // the next of the pods that goes to that node
				require.Equal(t, left < 30, v.Reason == ledger.Fits, "pod %d on %s", i, names[k])
			}
		}
		grant, rejection := l.StartBind(&p, start)
		require.Nil(t, rejection)
		require.Equal(t, refs[i], grant.Slot)
	}
}
