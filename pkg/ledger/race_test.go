package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/ledgertest"
)

// start is when the tests' time begins.
var start = time.Unix(1_000_000, 0)

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func podRef(name string) ledger.PodRef {
	return ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

// request asks for milli-CPU and bytes of memory.
func request(cpu, memory int64, ports ...resources.HostPort) *resources.Request {
	return &resources.Request{
		Amounts: []resources.Amount{
			{Column: resources.CPU, Value: cpu}, {Column: resources.Memory, Value: memory}, {Column: resources.Pods, Value: 1},
		},
		Ports: ports,
	}
}

// offer is a node with some milli-CPU, bytes of memory and capacity for pods.
func offer(name string, cpu, memory, pods int64) ledger.NodeObservation {
	return ledger.NodeObservation{Name: name, UID: types.UID(name), Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: cpu}, {Column: resources.Memory, Value: memory}, {Column: resources.Pods, Value: pods},
	}}
}

// newLedger returns a ledger of some equal nodes.
func newLedger(nodes int, cpu, memory, pods int64) *ledger.Ledger {
	l := ledger.New(ledger.Options{JournalSize: 1 << 20})
	for i := range nodes {
		l.ObserveNode(offer(nodeName(i), cpu, memory, pods))
	}
	return l
}

// TestConcurrentDecisionsNeverOvercommit lets many schedulers decide, bind and delete at once while readers read and
// time passes, and then replays every change: at none of them may a node have held more than it offers.
func TestConcurrentDecisionsNeverOvercommit(t *testing.T) {
	const workers, rounds, nodes = 8, 400, 6
	l := newLedger(nodes, 9, 9, 5)
	var clock atomic.Int64
	now := func() time.Time { return start.Add(time.Duration(clock.Load()) * time.Millisecond) }

	var schedulers, readers sync.WaitGroup
	for w := range workers {
		schedulers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for round := range rounds {
				oneRound(l, rng, fmt.Sprintf("%d-%d", w, round), now(), nodes)
				l.RemovePod(podRef(fmt.Sprintf("%d-%d", w, round-2)), 2) // what ran on has run for long enough
				clock.Add(1)
			}
		})
	}
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() { readUntil(t, l, stop, nodes) })
	}
	schedulers.Wait()
	close(stop)
	readers.Wait()

	events := replay(t, l, func(m *ledgertest.Mirror, e *ledger.Event) {
		require.NoError(t, m.CheckCapacity(e.Node), "after %+v", e)
	})
	assert.Greater(t, events, workers*rounds, "too little happened to prove anything")
}

// replay makes a ledger's changes anew, one by one, and counts them.
func replay(t *testing.T, l *ledger.Ledger, after func(*ledgertest.Mirror, *ledger.Event)) int {
	t.Helper()
	require.NoError(t, l.CheckInvariants())
	events, ok := l.EventsSince(nil, 0, 1<<20)
	require.True(t, ok)
	mirror := ledgertest.NewMirror(l.Table(), 0)
	for i := range events {
		require.NoError(t, mirror.Apply(&events[i]))
		after(mirror, &events[i])
	}
	require.NoError(t, mirror.Agrees(l.Reader))
	return len(events)
}

// oneRound is what one scheduler does with a pod or two, in one of several ways.
func oneRound(l *ledger.Ledger, rng *rand.Rand, name string, now time.Time, nodes int) {
	at := ledger.Placement{
		Pod: podRef(name), Node: nodeName(rng.IntN(nodes)), Scheduler: "s",
		Request: request(1+rng.Int64N(4), 1+rng.Int64N(4), hostPort(80+rng.Int32N(4))),
	}
	l.AppendFit(nil, &at, []string{at.Node})
	deadline := now.Add(time.Duration(rng.IntN(20)) * time.Millisecond)
	switch rng.IntN(8) {
	case 0: // reserve and forget: it expires
		l.Reserve(ledger.NewPlan([]ledger.Placement{at}, "", deadline), now)
		return
	case 1: // a pair of pods, given back
		other := at
		other.Pod, other.Node = podRef(name+"-b"), nodeName(rng.IntN(nodes))
		pair := []ledger.Placement{at, other}
		plan := ledger.NewPlan(pair, "", deadline)
		if rng.IntN(2) == 0 {
			l.Try(func(t *ledger.Trial) { t.Reserve(plan) })
			return
		}
		l.Reserve(plan, now)
		l.Unreserve(pair)
		return
	case 2: // the binding fails
		if _, rejection := l.StartBind(&at, now); rejection == nil {
			l.BindFailed(at.Pod, at.Node)
		}
		return
	case 3: // a gang scheduler binds for itself; the observation confirms
		l.Reserve(ledger.NewPlan([]ledger.Placement{at}, "", time.Time{}), now)
		if node, ok := l.HomeOf(at.Pod); ok {
			l.ObservePod(ledger.PodObservation{Pod: at.Pod, Node: node, Request: at.Request, ResourceVersion: 1})
		}
	case 4, 5, 6:
		roundWithSlot(l, rng, at, now, deadline)
	default:
		if _, rejection := l.StartBind(&at, now); rejection == nil {
			l.Confirm(at.Pod, at.Node)
		}
	}
	if rng.IntN(8) > 0 { // else it runs on and keeps its capacity for long
		l.RemovePod(at.Pod, 2)
		return
	}
	l.Expire(now)
}

// roundWithSlot is what one scheduler does with a pod that has capacity reserved, or
// shares some with others, or leaves some when it goes, or takes it from others.
func roundWithSlot(l *ledger.Ledger, rng *rand.Rand, at ledger.Placement, now, deadline time.Time) {
	h := ledger.Slot{
		Ref:  ledger.SlotRef{Namespace: "ns", Name: fmt.Sprintf("shared-%d", rng.IntN(4)), Slot: at.Node},
		Node: at.Node, Request: request(1+rng.Int64N(4), 1, hostPort(90)), Deadline: deadline,
		Policy:      []ledger.AllocatePolicy{ledger.Once, ledger.Aligned, ledger.Restricted}[rng.IntN(3)],
		Preemptible: rng.IntN(2) == 0,
	}
	if rng.IntN(3) == 0 {
		h.Ref.Name, h.Pod = "own-"+at.Pod.Name, at.Pod
	}
	l.Reserve(ledger.Plan{Slots: []ledger.Slot{h}}, now)
	at.Slots, at.Priority, at.Preempt = []ledger.SlotRef{h.Ref}, rng.Int32N(2), rng.IntN(2) == 0
	if _, rejection := l.StartBind(&at, now); rejection != nil {
		l.ReleaseSlots(h.Ref.Namespace, h.Ref.Name)
		return
	}
	l.SetSlotDeadline(h.Ref.Namespace, h.Ref.Name, deadline.Add(time.Duration(rng.IntN(9))*time.Millisecond))
	if rng.IntN(3) == 0 {
		l.BindFailed(at.Pod, at.Node)
		return
	}
	l.Confirm(at.Pod, at.Node)
	if rng.IntN(3) == 0 {
		h.Ref.Name, h.Pod = "after-"+at.Pod.Name, ledger.PodRef{}
		l.RemovePodHolding(at.Pod, 2, h)
	}
}

func hostPort(port int32) resources.HostPort {
	return resources.HostPort{PortKey: resources.PortKey{Protocol: "TCP", Port: port}, IP: "0.0.0.0"}
}

// readUntil reads all there is to read until it is stopped.
func readUntil(t *testing.T, l *ledger.Ledger, stop <-chan struct{}, nodes int) {
	wake, cancel := l.Subscribe()
	defer cancel()
	req := request(1, 1)
	for {
		select {
		case <-stop:
			return
		case <-wake:
		}
		fits := 0
		l.FitAll(&ledger.Placement{Request: req}, func(string, ledger.Verdict) bool { fits++; return true })
		assert.Equal(t, nodes, fits)
		l.Try(func(t *ledger.Trial) {
			t.Remove("uid-0-0", "uid-1-1")
			t.AppendFit(nil, &ledger.Placement{Pod: podRef("reader"), Request: req}, []string{nodeName(0)})
		})
		for _, n := range l.Snapshot().Nodes {
			assert.False(t, n.Overcommitted(), "%+v", n)
		}
		l.Allocations()
		l.Node(nodeName(1))
		l.Stats()
		l.NextDeadline()
		l.EventsSince(nil, l.Revision(), 10)
		l.AppendUsage(nil, []string{nodeName(0)}, []resources.Column{resources.CPU})
	}
}
