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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/ledgermodel"
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

// TestConcurrentDecisionsNeverOvercommit lets many schedulers decide, bind and
// delete at once while readers read and time passes, and then replays every
// change: at none of them may a node have held more than it offers.
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

	events := replay(t, l, func(m *ledgermodel.Mirror, e *ledger.Event) {
		require.NoError(t, m.CheckCapacity(e.Node), "after %+v", e)
	})
	assert.Greater(t, events, workers*rounds, "too little happened to prove anything")
}

// replay makes a ledger's changes anew, one by one, and counts them.
func replay(t *testing.T, l *ledger.Ledger, after func(*ledgermodel.Mirror, *ledger.Event)) int {
	t.Helper()
	require.NoError(t, l.CheckInvariants())
	events, ok := l.EventsSince(nil, 0, 1<<20)
	require.True(t, ok)
	mirror := ledgermodel.NewMirror(l.Table(), 0)
	for i := range events {
		require.NoError(t, mirror.Apply(&events[i]))
		after(mirror, &events[i])
	}
	assert.Equal(t, l.Snapshot(), mirror.Snapshot())
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

func resourceName(i int) v1.ResourceName { return v1.ResourceName(fmt.Sprintf("example.com/r%d", i)) }

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

// TestConcurrentObservations mixes decisions with pods bound by somebody else,
// nodes that shrink, vanish and come back, and resources nobody has heard of.
func TestConcurrentObservations(t *testing.T) {
	const workers, rounds, nodes = 6, 300, 4
	l := newLedger(nodes, 9, 9, 20)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(w)))
			for round := range rounds {
				now := start.Add(time.Duration(round) * time.Millisecond)
				node := nodeName(rng.IntN(nodes))
				oneRound(l, rng, fmt.Sprintf("%d-%d", w, round), now, nodes)
				column, _ := l.Table().Intern(resourceName(rng.IntN(20)))
				bypass := request(1+rng.Int64N(6), 1)
				bypass.Amounts = append(bypass.Amounts, resources.Amount{Column: column, Value: 1})
				pod := podRef(fmt.Sprintf("%d-%d", rng.IntN(workers), rng.IntN(round+1)))
				switch rng.IntN(6) {
				case 0, 1:
					l.ObservePod(ledger.PodObservation{Pod: pod, Node: node, Request: bypass, ResourceVersion: uint64(round)})
				case 2:
					l.RemoveNode(node)
				case 3:
					o := offer(node, 1+rng.Int64N(12), 9, 20)
					o.Allocatable = append(o.Allocatable, resources.Amount{Column: column, Value: 3})
					l.ObserveNode(o)
				default:
					l.RemovePod(pod, uint64(round))
				}
				l.Snapshot()
			}
		})
	}
	all.Wait()
	replay(t, l, func(*ledgermodel.Mirror, *ledger.Event) {})
}

// TestConcurrentGangsAreWholeOrNothing lets overlapping gangs compete for too
// little capacity: at any moment each of them is reserved whole or not at all.
func TestConcurrentGangsAreWholeOrNothing(t *testing.T) {
	const gangs, size, nodes, attempts = 24, 6, 10, 60
	l := newLedger(nodes, 6000, 6000, 10) // capacity for 60 of the 144 pods at most
	var all sync.WaitGroup
	var granted, refused atomic.Int64
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assertWholeGangs(t, l, size)
			}
		}
	})
	for g := range gangs {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(g)))
			for range attempts {
				members := gang(g, size, rng.Perm(nodes))
				result := l.Reserve(ledger.NewPlan(members, "", time.Time{}), start)
				switch result.Granted {
				case size:
					granted.Add(1)
					assert.Empty(t, result.Rejections)
					assert.Equal(t, size, l.Unreserve(members).Granted)
				case 0:
					refused.Add(1)
					assert.NotEmpty(t, result.Rejections)
				default:
					assert.Fail(t, "a gang was reserved in part", "%d of %d", result.Granted, size)
				}
			}
			l.Reserve(ledger.NewPlan(gang(g, size, rng.Perm(nodes)), "", time.Time{}), start)
		})
	}
	all.Wait()
	close(stop)
	reader.Wait()
	require.NoError(t, l.CheckInvariants())
	assertWholeGangs(t, l, size)
	assert.Positive(t, granted.Load(), "no gang fitted, which proves nothing")
	assert.Positive(t, refused.Load(), "no gang was refused, which proves nothing")
}

// gang is a plan of one pod per node.
func gang(g, size int, nodes []int) []ledger.Placement {
	var members []ledger.Placement
	for k := range size {
		members = append(members, ledger.Placement{
			Pod: podRef(fmt.Sprintf("group-%d-%d", g, k)), Node: nodeName(nodes[k]), Request: request(1000, 1000),
			Scheduler: fmt.Sprintf("group-%d", g),
		})
	}
	return members
}

func assertWholeGangs(t *testing.T, l *ledger.Ledger, size int) {
	t.Helper()
	members := map[string]int{}
	slots, _ := l.Slots()
	for i := range slots {
		members[slots[i].Scheduler]++
	}
	for name, n := range members {
		assert.Equal(t, size, n, name)
	}
}
