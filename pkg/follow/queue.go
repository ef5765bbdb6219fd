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
	queue   func() workqueue.TypedRateLimitingInterface[K] // made when it is needed: it has goroutines, which Run ends
}

// NewQueue returns a Queue that does not run.
func NewQueue[K comparable](o QueueOptions) *Queue[K] {
	return &Queue[K]{options: o, queue: sync.OnceValue(func() workqueue.TypedRateLimitingInterface[K] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](o.RetryFirst, o.RetryMost),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: o.Name})
	})}
}

// Add has a key worked on.
func (q *Queue[K]) Add(key K) { q.queue().Add(key) }

// AddAfter has a key worked on after a while.
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
	if err == nil || ctx.Err() != nil {
		queue.Forget(key)
		return true
	}
	if !apierrors.IsConflict(err) { // somebody else wrote it, which the watch brings
		q.options.Log.WithError(err).WithField("key", fmt.Sprint(key)).
			Warnf("%s: something failed; will try again", q.options.Name)
	}
	queue.AddRateLimited(key)
	return true
}
