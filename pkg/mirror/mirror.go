package mirror

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Options configures a Mirror.
type Options struct {
	// IgnoredResources are those of the server: extended resources it does not count.
	IgnoredResources []v1.ResourceName
	Log              logrus.FieldLogger
}

const (
	// grace is how long after the connection was lost the replica still counts as
	// healthy.
	grace = time.Second
	// maxLag is how long the replica may lack a revision that Seen told of.
	maxLag = 2 * time.Second
)

// The errors of Health.
var (
	ErrNotSynced = errors.New("the ledger has not been read yet")
	ErrAway      = errors.New("the connection to the server is lost")
	ErrBehind    = errors.New("the replica is behind the server")
)

// Mirror is a replica of a server's ledger. Make it with New, then Start and Stop it
// once.
type Mirror struct {
	o      Options
	ledger *ledger.Replica

	parts []*reserver.WatchSnapshot // of the loop alone

	mu       sync.Mutex // guards what follows
	synced   bool
	revision uint64    // of the server
	lostAt   time.Time // when the connection was lost; zero while it is there
	lostWhy  error
	seen     uint64    // the newest revision that an answer had
	behindAt time.Time // since when revision is less than seen; zero while it is not
	waiting  bool      // somebody waits for changed
	changed  chan struct{}
}

// New returns a Mirror that is empty.
func New(o Options) *Mirror {
	return &Mirror{
		o: o, changed: make(chan struct{}),
		// Revisions of the replica say nothing to others; see ledger/replica.go.
		ledger: ledger.NewReplica(ledger.Options{IgnoredResources: o.IgnoredResources}),
	}
}

// Read returns a replica of one moment, which a whole snapshot shows. What of the snapshot is not understood
// is the error.
func Read(snapshot *reserver.WatchSnapshot, o Options) (ledger.Reader, error) {
	m := New(o)
	return m.Ledger(), m.replace([]*reserver.WatchSnapshot{snapshot})
}

// Ledger returns the replica. It is for questions and dry runs only.
func (m *Mirror) Ledger() ledger.Reader { return m.ledger.Reader }

// Run follows a watcher until that, or ctx, ends, and stops it.
func (m *Mirror) Run(ctx context.Context, watcher *reserver.Watcher) error {
	defer watcher.Stop()
	for {
		select {
		case e, ok := <-watcher.Events():
			if ctx.Err() != nil {
				return nil // the watch ends with it, and may be seen first
			}
			if !ok {
				why := errors.New("the watch has ended")
				m.lost(why)
				return why
			}
			m.take(&e)
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes in one event.
func (m *Mirror) take(e *reserver.Event) {
	if e.Type == reserver.DisconnectedEvent {
		m.lost(e.Err)
		return
	}
	if err := m.apply(e); err != nil {
		m.o.Log.WithError(err).Error("A change of the server's ledger is not understood; is this scheduler older than the server?")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lostAt, m.lostWhy = time.Time{}, nil
	if e.Revision == 0 { // a heartbeat, or part of a snapshot
		return
	}
	if e.Type == reserver.SnapshotEvent {
		m.synced = true
		if e.Revision < m.seen {
			m.seen = 0 // another run of the server, whose clock was behind
		}
	}
	m.revision = e.Revision
	if m.revision >= m.seen {
		m.behindAt = time.Time{}
	}
	if m.waiting {
		m.waiting = false
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

func (m *Mirror) lost(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lostAt.IsZero() {
		m.lostAt = time.Now()
	}
	m.lostWhy = why
}

// Revision returns the server's revision the replica has reached.
func (m *Mirror) Revision() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

// Seen tells of a revision that an answer of the server had.
func (m *Mirror) Seen(revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision <= m.seen {
		return
	}
	m.seen = revision
	if m.revision < revision && m.behindAt.IsZero() {
		m.behindAt = time.Now()
	}
}

// WaitFor returns when the replica has reached a revision, or ctx ends.
func (m *Mirror) WaitFor(ctx context.Context, revision uint64) error {
	for {
		m.mu.Lock()
		reached, changed := m.revision >= revision, m.changed
		m.waiting = m.waiting || !reached
		m.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Health returns nil while the replica can be relied on, else one of this package's
// errors, with the reason where there is one.
func (m *Mirror) Health() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case !m.lostAt.IsZero() && (now.Sub(m.lostAt) > grace || !m.synced):
		return errors.Join(ErrAway, m.lostWhy)
	case !m.synced:
		return ErrNotSynced
	case !m.behindAt.IsZero() && now.Sub(m.behindAt) > maxLag:
		return ErrBehind
	default:
		return nil
	}
}

// Lag returns for how long the replica has lacked a revision that Seen told of, and
// by how many revisions it is behind; both are 0 where it lacks none.
func (m *Mirror) Lag() (time.Duration, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.behindAt.IsZero() || m.revision >= m.seen {
		return 0, 0
	}
	return time.Since(m.behindAt), m.seen - m.revision
}
