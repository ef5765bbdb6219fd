package election

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is the Lease, and knows for how long it is surely held.
type lease struct {
	resourcelock.Interface
	now func() time.Duration // of a clock that only runs forward; see uptime
	// sure is for how long after a renewal was sent nobody else can have the Lease.
	sure time.Duration
	// renewed is when the last renewal was sent that was carried out; 0 while the
	// Lease is not held.
	renewed atomic.Int64
	// known is who holds it, as far as is known.
	known atomic.Pointer[string]
	// acquired is set when an election was won. It is used by one goroutine.
	acquired bool
}

// holder returns the identity of who holds the Lease, "" where that is nobody or is not
// known.
func (l *lease) holder() string {
	if known := l.known.Load(); known != nil {
		return *known
	}
	return ""
}

// RecordEvent implements resourcelock.Interface. It is called as soon as the Lease is
// acquired.
func (l *lease) RecordEvent(event string) {
	l.acquired = true
	l.Interface.RecordEvent(event)
}

// Get implements resourcelock.Interface.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.known.Store(&record.HolderIdentity)
	}
	return record, raw, err
}

// held reports whether nobody else can have the Lease yet. A process that was
// suspended learns of that here first.
func (l *lease) held() bool {
	renewed := time.Duration(l.renewed.Load())
	return renewed != 0 && l.now()-renewed < l.sure
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// write renews or releases the Lease. It counts from before the request: when that was
// carried out is not known.
func (l *lease) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	sent, own := l.now(), record.HolderIdentity == l.Identity()
	if !own {
		l.renewed.Store(0)
	}
	err := do(ctx, record)
	if err == nil {
		l.known.Store(&record.HolderIdentity)
	}
	if err == nil && own {
		l.renewed.Store(int64(sent))
	}
	return err
}
