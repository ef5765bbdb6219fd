package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// fakePatcher records who was woken, in order; answer decides how a patch ends.
type fakePatcher struct {
	mu     sync.Mutex
	woken  []string
	values map[string]bool // of the annotation, so far
	answer func(pod ledger.PodRef) error
}

func (f *fakePatcher) Annotate(_ context.Context, pod ledger.PodRef, key, value string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key != RetryAnnotation || value == "" {
		return fmt.Errorf("unexpected annotation %s=%q", key, value)
	}
	if f.answer != nil {
		if err := f.answer(pod); err != nil {
			return err
		}
	}
	f.woken = append(f.woken, pod.Name)
	if f.values == nil {
		f.values = map[string]bool{}
	}
	f.values[value] = true
	return nil
}

func (f *fakePatcher) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.woken...)
}

func silentLog() logrus.FieldLogger {
	log, _ := logrustest.NewNullLogger()
	return log
}

// world is a ledger with nodes of 4 CPU each and a started Wakeups.
type world struct {
	t       *testing.T
	ledger  *ledger.Ledger
	wakeups *Wakeups
	patcher *fakePatcher
	count   atomic.Int64
}

// advance lets time pass in the bubble and waits until everybody has acted.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := &world{t: t, ledger: ledger.New(ledger.Options{FirstRevision: 100}), patcher: &fakePatcher{}}
	for _, n := range nodes {
		w.ledger.ObserveNode(ledger.NodeObservation{Name: n, Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 110},
		}})
	}
	w.wakeups = NewWakeups(WakeupOptions{
		Ledger: w.ledger, Patcher: w.patcher, Log: silentLog(), OnWakeup: func() { w.count.Add(1) },
	})
	w.wakeups.Start()
	t.Cleanup(w.wakeups.Stop)
	return w
}

func (w *world) pod(name, cpu string, priority int32) *podinfo.Info {
	info, err := podinfo.New(w.ledger.Table(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	})
	require.NoError(w.t, err)
	return info
}

func (w *world) reserve(p *podinfo.Info, node string, ttl time.Duration) {
	now := time.Now()
	result := w.ledger.Reserve(ledger.Plan{Placements: []ledger.Placement{p.Placement(node)}, Deadline: now.Add(ttl)}, now)
	require.Equal(w.t, 1, result.Granted)
}

func (w *world) observeBound(p *podinfo.Info, node string) {
	w.ledger.ObservePod(ledger.PodObservation{Pod: p.Ref, Node: node, Request: p.Request})
}

// refuse does what filter does for a pod that fits nowhere.
func (w *world) refuse(p *podinfo.Info) { w.wakeups.Refused(p, w.ledger.Revision()) }

func TestWakeupsOnSilentlyFreedRoom(t *testing.T) {
	cases := map[string]struct {
		hold func(w *world, p *podinfo.Info)
		free func(w *world, p *podinfo.Info)
	}{
		"unreserved": {
			hold: func(w *world, p *podinfo.Info) { w.reserve(p, "a", time.Hour) },
			free: func(w *world, p *podinfo.Info) { w.ledger.Unreserve([]ledger.Placement{p.Placement("a")}) },
		},
		"expired": {
			hold: func(w *world, p *podinfo.Info) { w.reserve(p, "a", time.Minute) },
			free: func(w *world, _ *podinfo.Info) { w.ledger.Expire(time.Now().Add(time.Minute)) },
		},
		"bind failed": {
			hold: func(w *world, p *podinfo.Info) {
				placement := p.Placement("a")
				_, rejection := w.ledger.StartBind(&placement, time.Now())
				require.Nil(w.t, rejection)
			},
			free: func(w *world, p *podinfo.Info) { w.ledger.BindFailed(p.Ref, "a") },
		},
		"reserved pod deleted before it was bound": {
			hold: func(w *world, p *podinfo.Info) { w.reserve(p, "a", time.Hour) },
			free: func(w *world, p *podinfo.Info) { w.ledger.RemovePod(p.Ref, 0) },
		},
		"bound elsewhere": {
			hold: func(w *world, p *podinfo.Info) { w.reserve(p, "a", time.Hour) },
			free: func(w *world, p *podinfo.Info) { w.observeBound(p, "b") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				holder, waiting := w.pod("holder", "4", 0), w.pod("waiting", "3", 0)
				w.observeBound(w.pod("filler", "2", 0), "b")
				tc.hold(w, holder)
				w.refuse(waiting)
				advance(10 * raceWindow) // long after: it is no race with an event
				assert.Empty(t, w.patcher.names(), "nothing was freed yet")

				tc.free(w, holder)
				synctest.Wait()
				assert.Equal(t, []string{"waiting"}, w.patcher.names())
				assert.EqualValues(t, 1, w.count.Load())

				advance(time.Minute)
				assert.Len(t, w.patcher.names(), 1, "woken once, not again and again")
			})
		})
	}
}

func TestWakeupsOrderAndFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		holder := w.pod("holder", "3", 0)
		w.observeBound(w.pod("filler", "1", 0), "a")
		w.reserve(holder, "a", time.Hour)
		w.refuse(w.pod("low", "1", -5))
		advance(time.Second)
		w.refuse(w.pod("middle-first", "1", 10))
		advance(time.Second)
		w.refuse(w.pod("middle-second", "1", 10))
		w.refuse(w.pod("high", "1", 1000))
		w.refuse(w.pod("too-large", "3500m", 2000))
		settled := w.pod("settled", "1", 5000)
		w.refuse(settled)
		w.wakeups.Settled(settled.Ref.UID)

		w.ledger.Unreserve([]ledger.Placement{holder.Placement("a")})
		synctest.Wait()
		assert.Equal(t, []string{"high", "middle-first", "middle-second", "low"}, w.patcher.names())
	})
}

// A pod's deletion reaches kube-scheduler by its own watch: only pods that were
// refused just before the ledger heard of it may have asked too early.
func TestWakeupsOnDeletionOfBoundPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		bound := w.pod("bound", "4", 0)
		w.observeBound(bound, "a")
		w.refuse(w.pod("long-waiting", "1", 100))
		advance(raceWindow + time.Second)
		w.refuse(w.pod("too-early", "1", 0))
		advance(raceWindow / 2)

		w.ledger.RemovePod(bound.Ref, 0)
		synctest.Wait()
		assert.Equal(t, []string{"too-early"}, w.patcher.names())
	})
}

// The room was freed between the decision of a filter call and its report.
func TestWakeupsRefusedWithOldView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		holder := w.pod("holder", "4", 0)
		w.reserve(holder, "a", time.Hour)
		decidedAt := w.ledger.Revision()
		w.ledger.Unreserve([]ledger.Placement{holder.Placement("a")})
		synctest.Wait()

		w.wakeups.Refused(w.pod("waiting", "4", 0), decidedAt)
		synctest.Wait()
		assert.Equal(t, []string{"waiting"}, w.patcher.names())
	})
}

func TestWakeupsPatchFailures(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "waiting")
	cases := map[string]struct {
		errs []error // of the first tries; then success
		want int     // wake-ups in the end
		took time.Duration
	}{
		"first try":                  {want: 1},
		"API server away for a time": {errs: []error{errors.New("refused"), errors.New("refused")}, want: 1, took: 2 * retryDelay},
		"pod deleted meanwhile":      {errs: []error{notFound}, want: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				errs := tc.errs
				w.patcher.answer = func(ledger.PodRef) error {
					if len(errs) == 0 {
						return nil
					}
					err := errs[0]
					errs = errs[1:]
					return err
				}
				holder := w.pod("holder", "4", 0)
				w.reserve(holder, "a", time.Hour)
				w.refuse(w.pod("waiting", "1", 0))
				w.ledger.Unreserve([]ledger.Placement{holder.Placement("a")})
				advance(tc.took)
				assert.Len(t, w.patcher.names(), tc.want)
				advance(time.Minute)
				assert.Len(t, w.patcher.names(), tc.want, "not tried again")
			})
		})
	}
}

// When more happened than the journal keeps, nobody is forgotten.
func TestWakeupsAfterJournalOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		holder, churn := w.pod("holder", "4", 0), w.pod("churn", "1", 0)
		w.reserve(holder, "a", time.Hour)
		w.observeBound(w.pod("filler", "2", 0), "b")
		w.refuse(w.pod("waiting", "3", 0))
		synctest.Wait()
		blocked := make(chan struct{})
		w.patcher.answer = func(ledger.PodRef) error { <-blocked; return nil }
		w.refuse(w.pod("blocks-the-loop", "1", 0))
		w.reserve(churn, "b", time.Hour)
		w.ledger.Unreserve([]ledger.Placement{churn.Placement("b")})
		synctest.Wait() // the loop now waits for the API server

		w.ledger.Unreserve([]ledger.Placement{holder.Placement("a")})
		for range 40_000 {
			w.ledger.ObserveNode(ledger.NodeObservation{Name: "c", Unschedulable: w.ledger.Revision()%2 == 0})
		}
		close(blocked)
		synctest.Wait()
		assert.Contains(t, w.patcher.names(), "waiting")
	})
}

func TestWakeupsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		holder := w.pod("holder", "4", 0)
		w.reserve(holder, "a", time.Hour)
		const pods = wakeupBurst + wakeupsPerSecond
		for i := range pods {
			w.refuse(w.pod(fmt.Sprintf("p%d", i), "1m", 0))
		}
		w.ledger.Unreserve([]ledger.Placement{holder.Placement("a")})
		synctest.Wait()
		assert.Len(t, w.patcher.names(), wakeupBurst)
		advance(time.Second)
		assert.Len(t, w.patcher.names(), pods)
	})
}

func TestExpirer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		var expired atomic.Int64
		e := NewExpirer(w.ledger, silentLog(), func(n int) { expired.Add(int64(n)) })
		e.Start()
		defer e.Stop()

		w.reserve(w.pod("one", "1", 0), "a", 10*time.Second)
		w.reserve(w.pod("two", "1", 0), "a", 5*time.Second) // sooner than the one waited for
		w.reserve(w.pod("three", "1", 0), "a", time.Hour)
		advance(5*time.Second - time.Nanosecond)
		assert.EqualValues(t, 0, expired.Load())
		advance(time.Nanosecond)
		assert.EqualValues(t, 1, expired.Load())
		advance(5 * time.Second)
		assert.EqualValues(t, 2, expired.Load())
		assert.Equal(t, 1, w.ledger.Stats().Claims[ledger.Reserved])
	})
}
