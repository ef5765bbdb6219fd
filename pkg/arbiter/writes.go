package arbiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/election"
)

// Fate is what the answer to a request says became of it.
type Fate uint8

// The fates. The zero value is that of a request of unknown fate.
const (
	// FateUnknown: carried out, or not, or not yet.
	FateUnknown Fate = iota
	// FateDone: carried out.
	FateDone
	// FateExists: not carried out, there is an object of that name.
	FateExists
	// FateMissing: not carried out, there is no such object.
	FateMissing
	// FateConflict: not carried out if a live read shows why, else unknown.
	FateConflict
	// FateRefused: not carried out, and the next try would not be either.
	FateRefused
	// FateNotSent: not carried out, but the next try may be.
	FateNotSent
)

// Classify tells what the error of a request about one object of a resource, named
// as in URLs, says of its fate.
func Classify(resource string, err error) Fate {
	var status apierrors.APIStatus
	var op *net.OpError
	switch {
	case err == nil:
		return FateDone
	case apierrors.IsAlreadyExists(err):
		return FateExists
	case isMissing(resource, err):
		return FateMissing
	case errors.As(err, &status):
		return classifyCode(int(status.Status().Code))
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, election.ErrNotSent):
		return FateNotSent
	default:
		return FateUnknown
	}
}

// classifyCode relies on the order in which the API server works: what it answers
// with a 4xx it found out before it wrote anything. 409 is the exception: it also
// answers that for errors of its storage, timeouts included, that it has no better
// code for.
func classifyCode(code int) Fate {
	switch {
	case code == http.StatusTooManyRequests:
		return FateNotSent
	case code == http.StatusConflict:
		return FateConflict
	case code == http.StatusRequestTimeout:
		return FateUnknown
	case code >= 400 && code < 500:
		return FateRefused
	default:
		return FateUnknown
	}
}

// isMissing reports whether the API server itself says that an object does not
// exist. A 404 may also be about the namespace or the whole resource, be an
// admission webhook's, or come from something on the way to the API server, which
// then knows nothing of an earlier request.
func isMissing(resource string, err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// The pauses between the tries of a write grow from the first to the longest.
const (
	firstPause          = 50 * time.Millisecond
	longestPause        = time.Second     // while somebody waits
	longestPauseOverdue = 5 * time.Second // afterwards
)

// write follows one write until its fate is known. It may be sent several times:
// the UID in a Binding and the name of an object make that harmless.
type write struct {
	pause time.Duration // before the last try
	// lost is when the last request of unknown fate was sent; zero if there is none.
	lost time.Time
}

// sent notes what was answered to a request. One whose fate is unknown may have been
// carried out, or may be waiting in the API server yet.
func (w *write) sent(at time.Time, said Fate) {
	if said == FateUnknown || said == FateConflict {
		w.lost = at
	}
}

// inDoubt reports whether a request may have been carried out although no answer said so.
func (w *write) inDoubt() bool { return !w.lost.IsZero() }

// over reports whether at a moment no request could still be carried out, because
// the API server gives up on each within settle.
func (w *write) over(at time.Time, settle time.Duration) bool {
	return !w.inDoubt() || at.Sub(w.lost) > settle
}

// next returns the pause before the next try. It is up to a quarter longer than it
// need be, so that the writes of an outage do not all return at once.
func (w *write) next(longest time.Duration, cause error) time.Duration {
	w.pause = min(max(2*w.pause, firstPause), longest)
	pause := max(w.pause, suggested(cause))
	return pause + rand.N(pause/4+1) //nolint:gosec // nobody gains by guessing it
}

// suggested is the pause an answer of the API server asks for.
func suggested(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(time.Duration(seconds)*time.Second, longestPauseOverdue)
	}
	return 0
}

// sleep waits and reports whether ctx lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// goOn has something done after its caller was answered; not after Stop.
func (a *Arbiter) goOn(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() == nil {
		a.wg.Go(do)
	}
}

// writers keep apart the requests that write the same Reservation objects.
type writers struct {
	stop <-chan struct{}

	mu   sync.Mutex
	open map[types.NamespacedName]chan struct{} // closed when the write has ended
}

// enter waits until nobody else writes the objects and begins. It returns the one
// that kept it waiting too long, or until ctx ended. leave ends it.
func (w *writers) enter(ctx context.Context, keys ...types.NamespacedName) (leave func(), busy types.NamespacedName,
	ok bool,
) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		at := slices.IndexFunc(keys, func(key types.NamespacedName) bool { return w.open[key] != nil })
		if at < 0 {
			done := make(chan struct{})
			for _, key := range keys {
				w.open[key] = done
			}
			w.mu.Unlock()
			return func() { w.leave(keys, done) }, busy, true
		}
		w.mu.Unlock()
		if !w.wait(ctx, keys[at]) {
			return nil, keys[at], false
		}
	}
}

func (w *writers) leave(keys []types.NamespacedName, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.open, key)
	}
	close(done)
}

// wait waits until nobody writes an object. It reports false where that took too
// long, or ctx ended.
func (w *writers) wait(ctx context.Context, key types.NamespacedName) bool {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for done := w.writing(key); done != nil; done = w.writing(key) {
		select {
		case <-done:
		case <-ctx.Done():
			return false
		case <-w.stop:
			return false
		}
	}
	return true
}

// writing returns what is closed when the write of an object ends, nil where nobody
// writes it.
func (w *writers) writing(key types.NamespacedName) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key]
}
