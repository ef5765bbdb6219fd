package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// stream is a watcher that a test speaks for.
type stream struct{ events chan reserver.Event }

func (s *stream) feed(ctx context.Context, send func(*reserver.Event) bool) {
	for {
		select {
		case e := <-s.events:
			send(&e)
		case <-ctx.Done():
			return
		}
	}
}

// spoken runs a test with a mirror and the stream it follows, in a bubble of its own time.
func spoken(t *testing.T, test func(t *testing.T, m *Mirror, s *stream)) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := logtest.NewNullLogger()
		m, s := New(Options{Log: log}), &stream{events: make(chan reserver.Event)}
		watcher := reserver.NewWatcher(t.Context(), s.feed)
		stop := background.Run(t, func(ctx context.Context) error { return m.Run(ctx, watcher) })
		test(t, m, s)
		stop()
		_, more := <-watcher.Events()
		assert.False(t, more, "it was stopped")
	})
}

func (s *stream) tell(e reserver.Event) {
	s.events <- e
	synctest.Wait()
}

func (s *stream) snapshot(revision uint64, nodes ...reserver.Node) {
	s.tell(reserver.Event{
		Type: reserver.SnapshotEvent, First: true, Revision: revision,
		Snapshot: &reserver.WatchSnapshot{Revision: revision, Nodes: nodes},
	})
}

func (s *stream) bookmark(revision uint64) {
	s.tell(reserver.Event{Type: reserver.BookmarkEvent, Revision: revision, Bookmark: &reserver.WatchBookmark{Revision: revision}})
}

func (s *stream) lost() {
	s.tell(reserver.Event{Type: reserver.DisconnectedEvent, Err: errors.New("reset by peer")})
}

func TestHealth(t *testing.T) {
	cases := map[string]struct {
		say  func(m *Mirror, s *stream)
		want error
	}{
		"nothing was told":       {func(*Mirror, *stream) {}, ErrNotSynced},
		"no connection to begin": {func(_ *Mirror, s *stream) { s.lost() }, ErrAway},
		"a snapshot":             {func(_ *Mirror, s *stream) { s.snapshot(5) }, nil},
		"a connection just lost": {func(_ *Mirror, s *stream) { s.snapshot(5); s.lost() }, nil},
		"a connection lost for long": {func(_ *Mirror, s *stream) {
			s.snapshot(5)
			s.lost()
			pass(2 * grace)
		}, ErrAway},
		"a connection that came back": {func(_ *Mirror, s *stream) {
			s.snapshot(5)
			s.lost()
			pass(2 * grace)
			s.bookmark(5)
		}, nil},
		"an answer just ahead": {func(m *Mirror, s *stream) { s.snapshot(5); m.Seen(6) }, nil},
		"an answer ahead for long": {func(m *Mirror, s *stream) {
			s.snapshot(5)
			m.Seen(6)
			pass(2 * maxLag)
		}, ErrBehind},
		"the second of two answers ahead for long": {func(m *Mirror, s *stream) {
			s.snapshot(5)
			m.Seen(6)
			m.Seen(7)
			s.bookmark(6)
			pass(2 * maxLag)
		}, ErrBehind},
		"an answer that was caught up with": {func(m *Mirror, s *stream) {
			s.snapshot(5)
			m.Seen(6)
			pass(2 * maxLag)
			s.bookmark(6)
		}, nil},
		"a server that began anew with an older clock": {func(m *Mirror, s *stream) {
			s.snapshot(500)
			m.Seen(600)
			pass(2 * maxLag)
			s.snapshot(5)
		}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spoken(t, func(t *testing.T, m *Mirror, s *stream) {
				tc.say(m, s)
				if tc.want == nil {
					assert.NoError(t, m.Health())
				} else {
					assert.ErrorIs(t, m.Health(), tc.want)
				}
			})
		})
	}
}

// How late the stream is counts, and not for how long some revision or other has been missing: where one pod after another
// is bound, the next answer comes before the event of the one before.
func TestHealthUnderLoad(t *testing.T) {
	const step, each = 50 * time.Millisecond, 10 * time.Second
	for name, tc := range map[string]struct {
		late []time.Duration // for a time each
		want error           // at the end of the last one
	}{
		"soon":           {[]time.Duration{2 * step}, nil},
		"late":           {[]time.Duration{3 * time.Second}, ErrBehind},
		"very late":      {[]time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second}, ErrBehind},
		"never":          {[]time.Duration{time.Hour}, ErrBehind},
		"late, then not": {[]time.Duration{9 * time.Second, 2 * step}, nil},
		"then no more":   {[]time.Duration{2 * step, time.Hour}, ErrBehind},
	} {
		t.Run(name, func(t *testing.T) {
			spoken(t, func(t *testing.T, m *Mirror, s *stream) {
				const first = 1000
				s.snapshot(first)
				answers := 0
				for i, late := range tc.late {
					for passed := time.Duration(0); passed < each; passed += step {
						answers++
						m.Seen(first + uint64(answers))
						if told := answers - int(late/step); told > 0 {
							s.bookmark(max(m.Revision(), first+uint64(told)))
						}
						if settled := maxLag + markEvery; i == len(tc.late)-1 && (passed > settled || tc.want == nil) {
							require.ErrorIs(t, m.Health(), tc.want, passed)
						}
						pass(step)
					}
				}
			})
		})
	}
}

// A watcher that ends with the context may be seen to end first: that is no failure.
func TestStopped(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		watcher := reserver.NewWatcher(ctx, func(ctx context.Context, _ func(*reserver.Event) bool) { <-ctx.Done() })
		cancel()
		watcher.Stop()
		log, _ := logtest.NewNullLogger()
		assert.NoError(t, New(Options{Log: log}).Run(ctx, watcher))
	}
}

func TestLag(t *testing.T) {
	spoken(t, func(t *testing.T, m *Mirror, s *stream) {
		s.snapshot(5)
		m.Seen(8)
		pass(time.Second)
		lag, revisions := m.Lag()
		assert.Equal(t, time.Second, lag)
		assert.EqualValues(t, 3, revisions)
		s.bookmark(8)
		lag, revisions = m.Lag()
		assert.Zero(t, lag)
		assert.Zero(t, revisions)
	})
}

func TestWaitFor(t *testing.T) {
	spoken(t, func(t *testing.T, m *Mirror, s *stream) {
		s.snapshot(5)
		require.NoError(t, m.WaitFor(t.Context(), 5))
		reached := make(chan error, 1)
		go func() { reached <- m.WaitFor(t.Context(), 7) }()
		s.bookmark(6)
		assert.Empty(t, reached)
		s.bookmark(7)
		assert.NoError(t, <-reached)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, m.WaitFor(ctx, 8), context.DeadlineExceeded)
	})
}

// Until a snapshot has come whole the mirror is what it was.
func TestSnapshotInParts(t *testing.T) {
	node := func(name string) reserver.Node {
		return reserver.Node{Name: name, Exists: true, Resources: map[string]reserver.NodeAmount{"cpu": {Allocatable: 1}}}
	}
	spoken(t, func(t *testing.T, m *Mirror, s *stream) {
		s.snapshot(5, node("old"))
		s.tell(reserver.Event{Type: reserver.SnapshotEvent, First: true, Snapshot: &reserver.WatchSnapshot{More: true, Nodes: []reserver.Node{node("a")}}})
		assert.Len(t, m.Ledger().Snapshot().Nodes, 1)
		s.tell(reserver.Event{Type: reserver.SnapshotEvent, Revision: 9, Snapshot: &reserver.WatchSnapshot{Revision: 9, Nodes: []reserver.Node{node("b")}}})
		assert.Len(t, m.Ledger().Snapshot().Nodes, 2)
		_, _, old := m.Ledger().Node("old")
		assert.False(t, old)
		assert.EqualValues(t, 9, m.Revision())
	})
}

// A slot that is not in a new snapshot has ended somehow; its pod may be pending yet.
func TestPodOfALostSlotIsNotGone(t *testing.T) {
	spoken(t, func(t *testing.T, m *Mirror, s *stream) {
		slot := reserver.NodeSlot{Namespace: "ns", Slot: reserver.Slot{Pod: "p", UID: "u", Node: "n", Requests: reserver.Amounts{"cpu": 1}}}
		n := reserver.Node{Name: "n", Exists: true, Resources: map[string]reserver.NodeAmount{"cpu": {Allocatable: 1}}}
		s.tell(reserver.Event{Type: reserver.SnapshotEvent, First: true, Revision: 5, Snapshot: &reserver.WatchSnapshot{
			Revision: 5, Nodes: []reserver.Node{n}, Slots: []reserver.NodeSlot{slot},
		}})
		pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}
		_, allocated := m.Ledger().InMemory(pod)
		require.True(t, allocated)
		s.snapshot(9, n)
		_, allocated = m.Ledger().InMemory(pod)
		require.False(t, allocated)
		view, err := request(m.Ledger().Table(), slot.Slot.Requests, nil)
		require.NoError(t, err)
		verdict := m.Ledger().AppendFit(nil, &ledger.Placement{Pod: pod, Request: view}, []string{"n"})
		assert.Equal(t, ledger.Fits, verdict[0].Reason)
	})
}

// A pod that is assumed is counted once, beside nothing that the server says of it, and not for longer than a bind takes.
func TestAssumed(t *testing.T) {
	ref := ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}
	allocation := func(kind, state string) reserver.Event {
		return reserver.Event{Type: reserver.AllocationEvent, Revision: 6, Allocation: &reserver.WatchAllocation{
			Revision: 6, Type: kind, Allocation: reserver.Allocation{
				Namespace: "ns", Pod: "p", UID: "u", Node: "theirs", State: state, Requests: reserver.Amounts{"cpu": 3},
			},
		}}
	}
	slot := func(kind ledger.EventType) reserver.Event {
		return reserver.Event{Type: reserver.SlotEvent, Revision: 6, Slot: &reserver.WatchSlot{Revision: 6, Type: string(kind), Slot: reserver.NodeSlot{
			Namespace: "ns", Slot: reserver.Slot{Pod: "p", UID: "u", Node: "theirs", Requests: reserver.Amounts{"cpu": 5}},
		}}}
	}
	bound, gone := allocation("AllocationBound", "Bound"), allocation(string(ledger.AllocationRemoved), "Bound")
	placed, released := slot(ledger.SlotPlaced), slot(ledger.SlotReleased)
	assume := func(m *Mirror, _ *stream) {
		m.Assume(&ledger.Placement{Pod: ref, Node: "ours", Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1}}}})
	}
	forget := func(m *Mirror, _ *stream) { m.Forget(ref) }
	tell := func(e reserver.Event) func(*Mirror, *stream) { return func(_ *Mirror, s *stream) { s.tell(e) } }
	after := func(d time.Duration) func(*Mirror, *stream) {
		return func(_ *Mirror, s *stream) { pass(d); s.tell(reserver.Event{Type: reserver.HeartbeatEvent}) }
	}
	none, ours, bind, kept := [2]int64{}, [2]int64{1, 0}, [2]int64{0, 3}, [2]int64{0, 5}
	for name, tc := range map[string]struct {
		steps []func(*Mirror, *stream)
		want  [2]int64 // used on its two nodes
	}{
		"assumed":                            {[]func(*Mirror, *stream){assume}, ours},
		"twice":                              {[]func(*Mirror, *stream){assume, assume}, ours},
		"given back":                         {[]func(*Mirror, *stream){assume, forget}, none},
		"bound":                              {[]func(*Mirror, *stream){assume, tell(bound), forget}, bind},
		"bound before":                       {[]func(*Mirror, *stream){tell(bound), assume}, bind},
		"bound before, given back":           {[]func(*Mirror, *stream){tell(bound), assume, forget}, bind},
		"bound before, and gone":             {[]func(*Mirror, *stream){tell(bound), assume, tell(gone)}, none},
		"kept for before":                    {[]func(*Mirror, *stream){tell(placed), assume}, kept},
		"kept for before, given back":        {[]func(*Mirror, *stream){tell(placed), assume, forget}, kept},
		"kept for meanwhile, given back":     {[]func(*Mirror, *stream){assume, tell(placed), forget}, kept},
		"kept for meanwhile, for long":       {[]func(*Mirror, *stream){assume, tell(placed), after(assumedFor)}, kept},
		"kept for meanwhile, and not later":  {[]func(*Mirror, *stream){assume, tell(placed), tell(released)}, none},
		"still being bound":                  {[]func(*Mirror, *stream){assume, after(assumedFor - 1)}, ours},
		"nothing is ever heard of it":        {[]func(*Mirror, *stream){assume, after(assumedFor)}, none},
		"nothing is heard of the first time": {[]func(*Mirror, *stream){assume, after(assumedFor - 1), forget, assume, after(2)}, ours},
	} {
		t.Run(name, func(t *testing.T) {
			spoken(t, func(t *testing.T, m *Mirror, s *stream) {
				s.snapshot(5)
				for _, step := range tc.steps {
					step(m, s)
				}
				usage := m.Ledger().AppendUsage(nil, []string{"ours", "theirs"}, []resources.Column{resources.CPU})
				assert.Equal(t, tc.want, [2]int64{usage[0].Used, usage[1].Used})
			})
		})
	}
}

func TestHostPorts(t *testing.T) {
	port := func(protocol v1.Protocol, ip string, number int32) resources.HostPort {
		return resources.HostPort{PortKey: resources.PortKey{Protocol: protocol, Port: number}, IP: ip}
	}
	for text, want := range map[string]resources.HostPort{
		"TCP/0.0.0.0:80": port(v1.ProtocolTCP, "0.0.0.0", 80), "UDP/:::53": port(v1.ProtocolUDP, "::", 53),
		"SCTP/10.0.0.1:65535": port(v1.ProtocolSCTP, "10.0.0.1", 65535),
	} {
		got, err := hostPort(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"TCP/80", "0.0.0.0:80", "TCP/host:80", "TCP/0.0.0.0:http", ""} {
		_, err := hostPort(text)
		assert.Error(t, err, text)
	}
}

// pass lets the bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }

// What a DeviceClass maps to devices is not refused for want of it, whichever the mirror is told first.
func TestMapped(t *testing.T) {
	const gpu = "example.com/gpu"
	node := reserver.Node{Name: "n", Exists: true, Resources: map[string]reserver.NodeAmount{"cpu": {Allocatable: 4}, "pods": {Allocatable: 1}}}
	snapshot := func(_ *Mirror, s *stream) { s.snapshot(5, node) }
	larger := func(_ *Mirror, s *stream) {
		more := node
		more.Resources = map[string]reserver.NodeAmount{"cpu": {Allocatable: 8}, "pods": {Allocatable: 1}}
		s.snapshot(6, more)
	}
	mapped := func(m *Mirror, _ *stream) { m.ObserveMapped([]string{gpu}) }
	unmapped := func(m *Mirror, _ *stream) { m.ObserveMapped(nil) }
	for name, tc := range map[string]struct {
		steps []func(*Mirror, *stream)
		want  ledger.Reason
	}{
		"not mapped":     {[]func(*Mirror, *stream){snapshot}, ledger.InsufficientResource},
		"mapped":         {[]func(*Mirror, *stream){snapshot, mapped}, ledger.Fits},
		"mapped before":  {[]func(*Mirror, *stream){mapped, snapshot}, ledger.Fits},
		"loaded anew":    {[]func(*Mirror, *stream){snapshot, mapped, larger}, ledger.Fits},
		"not any longer": {[]func(*Mirror, *stream){snapshot, mapped, unmapped}, ledger.InsufficientResource},
	} {
		t.Run(name, func(t *testing.T) {
			spoken(t, func(t *testing.T, m *Mirror, s *stream) {
				for _, step := range tc.steps {
					step(m, s)
				}
				pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("1m"), gpu: resource.MustParse("1"),
				}}}}}}
				request, err := resources.ForIncomingPod(m.Ledger().Table(), pod)
				require.NoError(t, err)
				verdict := m.Ledger().AppendFit(nil, &ledger.Placement{Pod: ledger.PodRef{UID: "u"}, Request: &request}, []string{"n"})
				assert.Equal(t, tc.want, verdict[0].Reason, verdict[0])
			})
		})
	}
}
