package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// termLabel is on the Lease, with the latest term: the LedgerTerm is removed with the definition of its kind.
const termLabel = v1alpha1.TermAnnotation

// lease is the Lease, and knows for how long it is surely held.
type lease struct {
	resourcelock.Interface
	lock *resourcelock.LeaseLock // the same
	// term is written on the Lease with each renewal; 0: the one that it has stays.
	term   atomic.Int64
	o      *Options
	writes *Writes
	// sure is how long after sending a renewal no other server can have the Lease.
	sure time.Duration
	// renewed is when the last successful renewal was sent; 0 while the Lease is not held.
	renewed atomic.Int64
	// trouble is why the Lease could not be read or written the last time; nil: it could.
	trouble atomic.Pointer[string]
	// known is its holder, as far as is known.
	known atomic.Pointer[string]
	// acquired is set when an election was won. One goroutine uses it and what follows.
	acquired bool
	// seen is the Lease as another server wrote it last, and since when it is like that.
	seen  resourcelock.LeaderElectionRecord
	since time.Duration
	// led is when another server was last seen to have it; 0: never.
	led time.Duration
	// restored is set where the version of the Lease went back: nothing that this server knows is valid then.
	restored atomic.Bool
	// over is set where the other server did not give it up, until nothing that it has sent can be under way any more.
	over atomic.Bool
	// others is called when the Lease turns out to be another server's.
	others func()
	// running ends when this server wants to be rid of the Lease.
	running context.Context
}

// awaitFree returns when no server has the Lease: it does not exist, was given up, or was not renewed for as long as it
// lasts. It asks more often than client-go does, which pauses for up to 2.2 times the period. A deleted Lease still
// belongs to its holder until that time has passed.
//
// Where the API server was away, awaitFree waits some looks longer, so that the server that had the Lease can renew it:
// that server has an account in memory that no other server has.
//
// others is called each time that another server is seen to have the Lease.
func (l *lease) awaitFree(ctx context.Context, lasts, poll time.Duration, others func()) error {
	l.over.Store(false)
	l.others = func() {}
	away := -graceLooks * poll
	for {
		asked := l.o.Clock.Uptime()
		record, _, err := l.Get(ctx)
		if l.restored.Load() {
			return errRestored
		}
		deleted := apierrors.IsNotFound(err)
		if now := l.o.Clock.Uptime(); (err != nil && !deleted) || now-asked > graceLooks*poll {
			away = now
		}
		if deleted {
			record = &l.seen
		}
		ends := l.since + max(lasts, time.Duration(l.seen.LeaseDurationSeconds)*time.Second)
		switch known := err == nil || deleted; {
		case known && record.HolderIdentity == "":
			if l.led != 0 {
				l.led = asked // it was given up since it was last looked at
			}
			return nil
		case known && !same(record, &l.seen):
			l.seen, l.since, l.led = *record, l.o.Clock.Uptime(), asked
			others()
		case known && asked-away >= graceLooks*poll && asked >= ends:
			l.over.Store(true)
			return nil
		case known:
			others()
		}
		pause := poll
		if left := ends - l.o.Clock.Uptime(); left > 0 {
			pause = min(pause, left)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// ledAgo returns how long ago another server was last seen to have the Lease.
func (l *lease) ledAgo() time.Duration {
	if l.led == 0 {
		return ever
	}
	return l.o.Clock.Uptime() - l.led
}

// graceLooks is how many looks a server that stands by waits after the API server was away.
const graceLooks = 4

// awaitOwn returns once it is known whether anybody else has had the Lease since this server could not renew it: nil
// where nobody has, because only this process writes its identity, errRestored where etcd was restored from a backup,
// and errLost otherwise.
func (l *lease) awaitOwn(ctx context.Context, poll time.Duration) error {
	l.over.Store(false)
	l.others = func() {}
	for {
		record, _, err := l.Get(ctx)
		switch {
		case l.restored.Load():
			return errRestored
		case err == nil && record.HolderIdentity == l.Identity():
			return nil
		case err == nil, apierrors.IsNotFound(err):
			return errLost
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
}

// same reports whether a Lease was not written in between.
func same(a, b *resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity && a.RenewTime.Equal(&b.RenewTime) &&
		a.LeaderTransitions == b.LeaderTransitions
}

// holder returns the identity of the Lease's holder, "" where there is none or it is not known.
func (l *lease) holder() string { return ptr.Deref(l.known.Load(), "") }

// RecordEvent implements resourcelock.Interface. It is called as soon as the Lease is acquired.
func (l *lease) RecordEvent(event string) {
	l.acquired = true
	l.Interface.RecordEvent(event)
}

// errOthers is why a Lease is not given up: it belongs to another server. client-go does not look who has it, and a
// process that was suspended would give up the Lease of another server.
var errOthers = errors.New("the lease is held by another server")

// errKept is why a Lease is not given up. This server could not renew it, and goes on if no other server takes it. Or
// writes of a server that is gone may still be under way.
var errKept = errors.New("the lease is not given up")

// Get implements resourcelock.Interface. A Lease that is over is shown as one that was given up: client-go would wait
// for its end once more.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.tried(err)
	if err != nil {
		return nil, nil, err
	}
	if l.over.Load() && same(record, &l.seen) {
		record.HolderIdentity = ""
	}
	l.known.Store(&record.HolderIdentity)
	if record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.others()
	}
	return record, raw, nil
}

// held reports whether this server has the Lease, and no other server can have it yet. A
// process that was suspended learns of that here first.
func (l *lease) held() bool {
	renewed := time.Duration(l.renewed.Load())
	return renewed != 0 && l.o.Clock.Uptime()-renewed < l.sure && !l.restored.Load()
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// tried records how a try to read or write the Lease went.
func (l *lease) tried(err error) { l.trouble.Store(denied("leases", err)) }

// denied says what right a server lacks, if that is why it was refused something, nil otherwise.
func denied(plural string, err error) *string {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return nil
	}
	return ptr.To(fmt.Sprintf("the API server denies this server %s (%s): apply manifests/base/rbac.yaml", plural, err))
}

// write renews or releases the Lease. It counts from before the request: when that was carried out is not known.
func (l *lease) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	do func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	sent, own := l.o.Clock.Uptime(), record.HolderIdentity == l.Identity()
	if own && l.restored.Load() {
		return errRestored // it is for a server that has begun anew
	}
	if !own {
		l.renewed.Store(0)
		switch {
		case l.holder() != l.Identity():
			return errOthers
		case l.running.Err() == nil, l.over.Load():
			return errKept
		}
		if err := l.writes.settle(ctx); err != nil {
			return err
		}
	}
	if own && l.renewed.Load() == 0 {
		if what := l.o.Stale(); what != "" {
			return fmt.Errorf("the lease is free, but this server may not know of the latest changes, so it does not "+
				"take it: %s", what)
		}
	}
	if term := Term(l.term.Load()); term != 0 {
		l.lock.Labels = map[string]string{termLabel: term.String()}
	}
	err := do(ctx, record)
	l.tried(err)
	if err == nil {
		l.known.Store(&record.HolderIdentity)
	}
	if err == nil && own {
		l.renewed.Store(int64(sent))
	}
	return err
}
