package cluster

import (
	"context"
	"sync"
	"sync/atomic"
)

// reachedVersion is the newest resource version that has reached the ledger. It only
// grows. The zero value has seen nothing.
type reachedVersion struct {
	version atomic.Uint64

	mu   sync.Mutex    // guards more, and every raise
	more chan struct{} // closed at the next raise; nil while nobody waits
}

// raise records that everything up to version has been taken in.
func (s *reachedVersion) raise(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.version.Load() {
		return
	}
	s.version.Store(version)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// wait returns nil once version has been seen, or the error of ctx if that ends
// first.
func (s *reachedVersion) wait(ctx context.Context, version uint64) error {
	for {
		more := s.next(version)
		if more == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns a channel that is closed when more has been seen, nil where
// version has been seen already.
func (s *reachedVersion) next(version uint64) <-chan struct{} {
	if version <= s.version.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.version.Load() {
		return nil
	}
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.more
}

// WaitForPods returns nil once the store, and the ledger with it, has all changes
// of pods up to a resource version, or the error of ctx if that ends first. Whoever
// has a pod that is newer than what the watch has brought may know that others are
// gone which the ledger still counts. It costs nothing where there is nothing to
// wait for.
func (s *Pods) WaitForPods(ctx context.Context, version uint64) error {
	return s.seen.wait(ctx, version)
}

// Seen records that all changes of pods up to a resource version are in.
func (s *Pods) Seen(version uint64) { s.seen.raise(version) }
