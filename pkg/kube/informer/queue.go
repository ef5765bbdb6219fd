package informer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

const (
	// refusedFirst is the pause after the API server has refused what is written for a key, by a quota, a policy or
	// validation: a repeat is refused as well, until somebody changes that. The pause after each repeat is twice as long,
	// up to refusedMost. A key that is added during a pause is tried at once, as it may have changed.
	refusedFirst, refusedMost = 5 * time.Second, 2 * time.Minute
	// failuresPerSecond is how many failures are logged, after a burst.
	failuresPerSecond, failureBurst = 1, 10
)

// QueueOptions configures a Queue. All fields are needed.
type QueueOptions[K comparable] struct {
	Name string // of the work, for the log
	// Workers is how many keys are worked on at once.
	Workers int
	// RetryFirst is the pause after the first failure with a key; each next one is twice as long, up to RetryMost.
	RetryFirst, RetryMost time.Duration
	// NamespaceOf returns the namespace that a key is worked on for. Namespaces take turns.
	NamespaceOf func(key K) string
	Log         logrus.FieldLogger
}

// Queue works on keys: on each key with one worker at a time, and again where the work fails. Keys may
// be added before it runs. Make one with NewQueue.
type Queue[K comparable] struct {
	options QueueOptions[K]
	queue   func() workqueue.TypedRateLimitingInterface[K] // made when it is needed: it has goroutines, which Run ends
	lines   *rate.Limiter                                  // of the log
	untold  atomic.Int64                                   // failures that were not logged since the last that was
	mu      sync.Mutex
	refused map[K]pause // guarded by mu
}

// pause is a key's last pause after a refusal.
type pause struct {
	length time.Duration
	until  time.Time
}

// NewQueue returns a Queue that does not run.
func NewQueue[K comparable](o QueueOptions[K]) *Queue[K] {
	return &Queue[K]{
		options: o, lines: rate.NewLimiter(failuresPerSecond, failureBurst),
		refused: map[K]pause{},
		queue: sync.OnceValue(func() workqueue.TypedRateLimitingInterface[K] {
			return NewTurnsQueue(o.Name, o.RetryFirst, o.RetryMost, o.NamespaceOf)
		}),
	}
}

// Add queues a key to be worked on.
func (q *Queue[K]) Add(key K) { q.queue().Add(key) }

// AddAfter queues a key to be worked on after a while.
func (q *Queue[K]) AddAfter(key K, after time.Duration) { q.queue().AddAfter(key, after) }

// Run works on the keys until ctx ends. A key is forgotten when work returns nil.
func (q *Queue[K]) Run(ctx context.Context, work func(ctx context.Context, key K) error) error {
	var workers sync.WaitGroup
	for range q.options.Workers {
		workers.Go(func() {
			for q.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	q.queue().ShutDown()
	workers.Wait()
	return nil
}

// next works on one key; it returns false when there will be none.
func (q *Queue[K]) next(ctx context.Context, work func(ctx context.Context, key K) error) bool {
	queue := q.queue()
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	err := work(ctx, key)
	switch {
	case err == nil, ctx.Err() != nil:
		queue.Forget(key)
		q.accepted(key)
	case apierrors.IsConflict(err): // somebody else wrote the object: the watch brings it
		queue.AddRateLimited(key)
	case isRefused(err):
		q.tell(key, err)
		queue.AddAfter(key, q.pause(key))
	default:
		q.tell(key, err)
		queue.AddRateLimited(key)
	}
	return true
}

// pause returns how long a key that was refused has to wait: for the rest of its pause, or for the next one.
func (q *Queue[K]) pause(key K) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, now := q.refused[key], time.Now()
	if !now.Before(p.until) {
		p.length = min(max(2*p.length, refusedFirst), refusedMost)
		p.until = now.Add(p.length)
		q.refused[key] = p
	}
	return p.until.Sub(now)
}

func (q *Queue[K]) accepted(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.refused, key)
}

// isRefused reports whether the API server refuses a write for its content, and not for its sender: a server without
// the right, or one that wrote in a term that is over. Only the messages distinguish these. A client that makes the API
// server quote such a message only has its own writes repeated more often.
func isRefused(err error) bool {
	if LacksRight(err) ||
		apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'globalreserve-fence'") {
		return false
	}
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// LacksRight reports whether the API server cannot authenticate the sender of a request, or finds no right of theirs to
// it. The next try may succeed: this happens for a moment where the API server starts or a token is changed.
func LacksRight(err error) bool {
	return apierrors.IsUnauthorized(err) ||
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), ` is forbidden: User "`)
}

// tell logs a failure, unless there are too many.
func (q *Queue[K]) tell(key K, err error) {
	if !q.lines.Allow() {
		q.untold.Add(1)
		return
	}
	log := q.options.Log.WithError(err).WithField("key", fmt.Sprint(key))
	if untold := q.untold.Swap(0); untold > 0 {
		log = log.WithField("untold", untold)
	}
	log.Warnf("%s: something failed; will try again", q.options.Name)
}
