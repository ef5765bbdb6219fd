package mirror

import (
	"context"
	"errors"
	"slices"
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
	// markEvery is how often at most it is remembered since when a revision is missing, and maxMissing how many are. Together
	// they are longer than maxLag: where the oldest is reached and the stream is still late, the next is old enough, too.
	markEvery  = maxLag / 8
	maxMissing = 16
	// assumedFor is how long a pod that Assume counts is counted at most: longer than any bind takes.
	assumedFor = time.Minute
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
	made   time.Time

	parts []*reserver.WatchSnapshot // of the loop alone

	mu       sync.Mutex // guards what follows
	synced   bool
	revision uint64    // of the server
	lostAt   time.Time // when the connection was lost; zero while it is there
	lostWhy  error
	seen     uint64    // the newest revision that an answer had
	missing  []missing // the oldest first; empty while revision is not less than seen
	waiting  bool      // somebody waits for changed
	changed  chan struct{}
}

// missing is a revision that an answer had, and the replica has not, and since when.
type missing struct {
	revision uint64
	since    time.Time
}

// New returns a Mirror that is empty.
func New(o Options) *Mirror {
	return &Mirror{
		o: o, changed: make(chan struct{}), made: time.Now(),
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

// Assume counts a pod on a node that is about to be bound there, where nothing is known of it. It is counted until the
// watch tells of the pod, Forget takes it away, or no bind takes so long. A snapshot takes it away as well: nobody
// relies on it but questions.
func (m *Mirror) Assume(p *ledger.Placement) {
	m.ledger.Assume(p, m.now().Add(assumedFor))
}

// ObserveMapped records which resources DeviceClasses map to DRA devices, of which the server's watch does not tell, and
// returns those that none did before.
func (m *Mirror) ObserveMapped(names []string) (added []string) { return m.ledger.ObserveMapped(names) }

// now is a moment that no step of the wall clock moves.
func (m *Mirror) now() time.Time { return m.made.Add(time.Since(m.made)) }

// Forget ends what Assume has counted, where the watch has not told of the pod.
func (m *Mirror) Forget(pod ledger.PodRef) { m.ledger.Forget(pod) }

// Run follows a watcher until that, or ctx, ends, and stops it.
func (m *Mirror) Run(ctx context.Context, watcher *reserver.Watcher) error {
	defer watcher.Stop()
	for {
		select {
		case e, ok := <-watcher.Events():
			if !ok && ctx.Err() != nil {
				return nil // the watcher ended with it, and was seen to first
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
	m.ledger.Expire(m.now())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lostAt, m.lostWhy = time.Time{}, nil
	if e.Revision == 0 { // a heartbeat, or part of a snapshot
		return
	}
	if e.Type == reserver.SnapshotEvent {
		m.synced = true
		if e.Revision < m.seen {
			m.seen, m.missing = 0, nil // another run of the server, whose clock was behind
		}
	}
	m.revision = e.Revision
	m.missing = slices.DeleteFunc(m.missing, func(r missing) bool { return r.revision <= m.revision })
	if len(m.missing) == 0 {
		m.mark()
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
	m.mark()
}

// mark remembers that the newest revision is missing from now on, where none is remembered, or none was for a while. Those
// between count once the ones before them are reached, with a time that is too late: the lag that is found is never too long.
func (m *Mirror) mark() {
	now, n := time.Now(), len(m.missing)
	if m.revision < m.seen && (n == 0 || n < maxMissing && now.Sub(m.missing[n-1].since) >= markEvery) {
		m.missing = append(m.missing, missing{m.seen, now})
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
	case len(m.missing) > 0 && now.Sub(m.missing[0].since) > maxLag:
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
	if len(m.missing) == 0 {
		return 0, 0
	}
	return time.Since(m.missing[0].since), m.seen - m.revision
}
