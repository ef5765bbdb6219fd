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
