package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// newTestQueue has keys that begin with their namespace.
func newTestQueue(workers int, log logrus.FieldLogger) *Queue[string] {
	return NewQueue(QueueOptions[string]{
		Name: "work", Workers: workers, RetryFirst: time.Second, RetryMost: 2 * time.Second, Log: log,
		NamespaceOf: func(key string) string { namespace, _, _ := strings.Cut(key, "/"); return namespace },
	})
}

// A namespace with many keys does not keep others waiting.
func TestQueueTakesTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		log, _ := logtest.NewNullLogger()
		q := newTestQueue(1, log)
		for i := range 4 {
			q.Add(fmt.Sprintf("many/%d", i))
		}
		q.Add("few/0")
		q.Add("many/1")
		q.Add("one/0")
		q.Add("few/1")
		var done []string
		run(func(ctx context.Context) error {
			return q.Run(ctx, func(_ context.Context, key string) error {
				if done = append(done, key); key == "one/0" {
					q.Add("few/2")
				}
				return nil
			})
		})
		synctest.Wait()
		assert.Equal(t, []string{"many/0", "few/0", "one/0", "many/1", "few/1", "many/2", "few/2", "many/3"}, done)
	})
}

// What the API server refuses for what it is, by a quota or a policy, is tried less and less often, and the log has not
// all of it.
func TestQueueOfRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		log, lines := logtest.NewNullLogger()
		q := newTestQueue(4, log)
		const keys = 1500
		var mu sync.Mutex
		tries, over := map[string]int{}, false
		forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("exceeded quota"))
		run(func(ctx context.Context) error {
			return q.Run(ctx, func(_ context.Context, key string) error {
				mu.Lock()
				defer mu.Unlock()
				if tries[key]++; over {
					return nil
				}
				return fmt.Errorf("making claim: %w", forbidden)
			})
		})
		for i := range keys {
			q.Add(fmt.Sprintf("many/%d", i))
		}
		tried := func() int {
			mu.Lock()
			defer mu.Unlock()
			return tries["many/7"]
		}
		pass(time.Minute)
		assert.Equal(t, 4, tried(), "at the beginning, and after 5, 15 and 35 seconds")
		pass(time.Hour)
		assert.InDelta(t, 4+30, tried(), 2, "every other minute")
		told, untold := int64(0), int64(0)
		for _, line := range lines.AllEntries() {
			more, _ := line.Data["untold"].(int64)
			told, untold = told+1, untold+more
		}
		assert.LessOrEqual(t, told, int64(failureBurst+3660*failuresPerSecond))
		assert.Greater(t, told+untold, int64(30*keys))
		mu.Lock()
		over = true
		clear(tries)
		mu.Unlock()
		pass(refusedMost)
		mu.Lock()
		assert.Len(t, tries, keys, "it is tried until it succeeds")
		over = false
		mu.Unlock()
		q.Add("many/7")
		pass(time.Minute)
		assert.Equal(t, 1+4, tried(), "and begins anew then")
	})
}

// A key that is added during the pause is tried at once, for what it is may have changed; the pause gets longer only
// when it is over. What the server itself is the cause of, a term that is over or a right that is missing, has no such
// pauses: the next try may succeed, whatever was asked for.
func TestQueueOfRefusalsIsFast(t *testing.T) {
	forbidden := func(message string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "claims"}, "x", errors.New(message))
	}
	for name, test := range map[string]struct {
		err   error
		adds  int
		most  time.Duration // of the pause after a minute
		tries int           // in that minute
	}{
		"a quota":                       {forbidden("exceeded quota"), 0, refusedMost, 4},
		"a quota, and the key is added": {forbidden("exceeded quota"), 6, 40 * time.Second, 4 + 6},
		"no right": {
			forbidden(`User "server" cannot create resource "claims" in API group "" at the cluster scope`),
			0, 2 * time.Second, 31,
		},
		"a term that is over": {
			apierrors.NewInvalid(schema.GroupKind{}, "x", field.ErrorList{field.Forbidden(nil,
				"ValidatingAdmissionPolicy 'globalreserve-fence' with binding 'globalreserve-fence' denied request: "+
					"it was decided in term 7, which is over")}),
			0, 2 * time.Second, 31,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
				log, _ := logtest.NewNullLogger()
				q := newTestQueue(1, log)
				var mu sync.Mutex
				var list []time.Time
				run(func(ctx context.Context) error {
					return q.Run(ctx, func(context.Context, string) error {
						mu.Lock()
						defer mu.Unlock()
						list = append(list, time.Now())
						return test.err
					})
				})
				tries := func() []time.Time {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(list)
				}
				q.Add("x")
				for range test.adds {
					pass(100 * time.Millisecond)
					q.Add("x")
				}
				pass(time.Minute - time.Duration(test.adds)*100*time.Millisecond)
				assert.Len(t, tries(), test.tries)
				last := len(tries())
				pass(test.most)
				assert.Greater(t, len(tries()), last)
			})
		})
	}
}

func TestQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		log, lines := logtest.NewNullLogger()
		q := newTestQueue(2, log)
		q.Add("early")
		q.Add("early")
		var mu sync.Mutex
		begun := time.Now()
		tries := map[string][]time.Duration{}
		run(func(ctx context.Context) error {
			return q.Run(ctx, func(_ context.Context, key string) error {
				mu.Lock()
				defer mu.Unlock()
				tries[key] = append(tries[key], time.Since(begun))
				switch {
				case len(tries[key]) < 4 && key == "bad":
					return errors.New("no")
				case len(tries[key]) < 2 && key == "conflict":
					return apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("changed"))
				default:
					return nil
				}
			})
		})
		q.Add("bad")
		q.Add("conflict")
		q.AddAfter("late", 10*time.Second)
		pass(time.Minute)
		assert.Equal(t, map[string][]time.Duration{
			"early": {0}, "bad": {0, time.Second, 3 * time.Second, 5 * time.Second}, "conflict": {0, time.Second},
			"late": {10 * time.Second},
		}, tries)
		assert.Len(t, lines.AllEntries(), 3, "a conflict is nothing to tell of")
	})
}
