package follow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// QueueOptions configures a Queue. All fields are needed.
type QueueOptions struct {
	Name string // of the work, for the log
	// Workers is how many keys are worked on at once.
	Workers int
	// RetryFirst is the pause after the first failure with a key; each next one is twice as long, up to RetryMost.
	RetryFirst, RetryMost time.Duration
	Log                   logrus.FieldLogger
}

// Queue has keys worked on: each key by one worker at a time, and again where the work fails. Keys may
// be added before it runs. Make one with NewQueue.
type Queue[K comparable] struct {
	options QueueOptions

	mu    sync.RWMutex // guards what follows
	queue workqueue.TypedRateLimitingInterface[K]
	early []K // added before there was a queue, which has goroutines
}

// NewQueue returns a Queue that does not run.
func NewQueue[K comparable](o QueueOptions) *Queue[K] { return &Queue[K]{options: o} }

// Add has a key worked on.
func (q *Queue[K]) Add(key K) { q.AddAfter(key, 0) }

// AddAfter has a key worked on after a while.
func (q *Queue[K]) AddAfter(key K, after time.Duration) {
	q.mu.RLock()
	queue := q.queue
	q.mu.RUnlock()
	if queue == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if queue = q.queue; queue == nil {
			q.early = append(q.early, key)
			return
		}
	}
	queue.AddAfter(key, after)
}

// Run works on the keys until ctx ends. A key is forgotten when work returns nil.
func (q *Queue[K]) Run(ctx context.Context, work func(ctx context.Context, key K) error) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](q.options.RetryFirst, q.options.RetryMost),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: q.options.Name})
	q.mu.Lock()
	q.queue = queue
	early := q.early
	q.early = nil
	q.mu.Unlock()
	for _, key := range early {
		queue.Add(key)
	}
	var workers sync.WaitGroup
	for range q.options.Workers {
		workers.Go(func() {
			for q.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// next works on one key; it returns false when there will be none.
func (q *Queue[K]) next(ctx context.Context, work func(ctx context.Context, key K) error) bool {
	key, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(key)
	err := work(ctx, key)
	if err == nil || ctx.Err() != nil {
		q.queue.Forget(key)
		return true
	}
	if !apierrors.IsConflict(err) { // somebody else wrote it, which the watch brings
		q.options.Log.WithError(err).WithField("key", fmt.Sprint(key)).Warnf("%s: something failed; will try again", q.options.Name)
	}
	q.queue.AddRateLimited(key)
	return true
}
