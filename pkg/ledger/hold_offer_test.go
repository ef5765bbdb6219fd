package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestUsableHolds(t *testing.T) {
	l := ledger.New(ledger.Options{})
	request := func(cpu int64) *resources.Request {
		return &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: cpu}, {Column: resources.Pods, Value: 1}}}
	}
	allocatable := []resources.Amount{{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 110}}
	for _, node := range []string{"n1", "n2", "n3"} {
		l.ObserveNode(ledger.NodeObservation{Name: node, UID: "u", Allocatable: allocatable, Unschedulable: node == "n3"})
	}
	now := time.Unix(0, 0)
	ref := func(slot string) ledger.HoldRef { return ledger.HoldRef{Namespace: "ns", Name: "r", Slot: slot} }
	hold := func(slot, node string, policy ledger.AllocatePolicy) ledger.Hold {
		return ledger.Hold{Ref: ref(slot), Node: node, Request: request(3000), Policy: policy}
	}
	forPod := hold("pod", "n2", ledger.Once)
	forPod.Pod = ledger.PodRef{Namespace: "ns", Name: "p"}
	forPod.Request = request(100)
	for _, h := range []ledger.Hold{hold("once", "n1", ledger.Once), hold("shared", "n2", ledger.Aligned), hold("cordoned", "n3", ledger.Once), forPod} {
		require.True(t, l.ObserveHold(h))
	}
	pod := ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}, Request: request(1000),
		Holds: []ledger.HoldRef{ref("shared"), ref("cordoned"), ref("none"), ref("once")},
	}
	want := []ledger.UsableHold{
		{Ref: ref("pod"), Node: "n2"}, {Ref: ref("shared"), Node: "n2", Shared: true}, {Ref: ref("once"), Node: "n1"},
	}
	assert.Equal(t, want, l.UsableHolds(&pod))

	big := pod
	big.Request = request(5000)
	assert.Empty(t, l.UsableHolds(&big), "no hold and the node's free room together are enough")
	stranger := pod
	stranger.Pod.Namespace = "other"
	assert.Empty(t, l.UsableHolds(&stranger))

	other := pod
	other.Pod = ledger.PodRef{Namespace: "ns", Name: "q", UID: "v"}
	other.Node = "n1"
	grant, rejection := l.StartBind(&other, now)
	require.Nil(t, rejection)
	require.Equal(t, ref("once"), grant.Hold)
	assert.Equal(t, want[:2], l.UsableHolds(&pod), "the first pod has taken what is for one pod")
	assert.Empty(t, l.UsableHolds(&other), "it has a claim")
	l.RemovePod(pod.Pod, 1)
	assert.Empty(t, l.UsableHolds(&pod), "it is gone")
}

// TestManyCandidates: of however many slots a pod may use, the first that will
// do on the node is used.
func TestManyCandidates(t *testing.T) {
	l := newLedger(3, 100, 100, 110)
	var plan ledger.Plan
	var refs []ledger.HoldRef
	for i := range 30 {
		ref := ledger.HoldRef{Namespace: "ns", Name: "r", Slot: fmt.Sprintf("s-%02d", i)}
		refs = append(refs, ref)
		plan.Slots = append(plan.Slots, ledger.Hold{Ref: ref, Node: nodeName(i % 3), Request: request(10, 10), Policy: ledger.Once})
	}
	require.Equal(t, 30, l.Reserve(plan, start).Granted)
	names := []string{nodeName(0), nodeName(1), nodeName(2)}
	for i := range 30 {
		p := ledger.Placement{Pod: podRef(fmt.Sprint(i)), Node: nodeName(i % 3), Request: request(10, 10), Holds: refs}
		backwards := p
		backwards.Holds = slices.Clone(refs)
		slices.Reverse(backwards.Holds)
		for _, ask := range []*ledger.Placement{&p, &backwards} {
			for k, v := range l.AppendFit(nil, ask, names) {
				left := i + (k-i%3+3)%3 // the next of the pods that goes to that node
				require.Equal(t, left < 30, v.Reason == ledger.Fits, "pod %d on %s", i, names[k])
			}
		}
		grant, rejection := l.StartBind(&p, start)
		require.Nil(t, rejection)
		require.Equal(t, refs[i], grant.Hold)
	}
}
