package binder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errForbidden  = apierrors.NewForbidden(bindings, "p", errors.New("not allowed"))
	errInvalid    = apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Binding").GroupKind(), "p", nil)
	errBadRequest = apierrors.NewBadRequest("no")
	errInternal   = apierrors.NewInternalError(errors.New("etcd"))
	errTimeout    = apierrors.NewServerTimeout(pods, "update", 2)
	errTooMany    = apierrors.NewTooManyRequests("slow down", 1)
	errStorage    = apierrors.NewConflict(bindings, "p", errors.New("context deadline exceeded"))
	errNoRoute    = apierrors.NewGenericServerResponse(404, "POST", pods, "p", "page not found", 0, true)
)

// script plays replies in order, then honest ones.
func script(replies ...reply) func(int) reply {
	return func(n int) reply {
		if n < len(replies) {
			return replies[n]
		}
		return honest
	}
}

// fail makes the first n GETs fail.
func fail(n int, err error) func(int) error {
	return func(k int) error {
		if k < n {
			return err
		}
		return nil
	}
}

func always(err error) func(int) reply { return func(int) reply { return reply{err: err} } }

// many stands for a number of POSTs that depends on the length of random pauses.
const many = -1

// TestBind binds pod p, which the informer knows, to node a.
func TestBind(t *testing.T) {
	now := metav1.Now()
	tests := map[string]struct {
		setup   func(w *world, p *v1.Pod)
		bind    func(n int) reply
		get     func(n int) error
		outcome Outcome
		state   ledger.State
		posts   int
		gets    int
		within  time.Duration // 0: at once
	}{
		"success":            {outcome: Bound, state: ledger.Bound, posts: 1},
		"the answer is lost": {bind: script(lost), outcome: Bound, state: ledger.Bound, posts: 1, gets: 1},
		"a 500 after the commit": {
			bind:    script(reply{commit: before, err: errInternal}),
			outcome: Bound, state: ledger.Bound, posts: 1, gets: 1,
		},
		"a 409 for a storage timeout after the commit": {
			bind:    script(reply{commit: before, err: errStorage}),
			outcome: Bound, state: ledger.Bound, posts: 1, gets: 1,
		},
		"the request is lost": {bind: script(unsent), outcome: Bound, state: ledger.Bound, posts: 2, gets: 1, within: time.Second},
		"a 409 for a storage timeout without a commit": {
			bind:    script(reply{err: errStorage}),
			outcome: Bound, state: ledger.Bound, posts: 2, gets: 1, within: time.Second,
		},
		"the answer is lost, and the first read fails": {
			bind: script(lost), get: fail(1, errReset),
			outcome: Bound, state: ledger.Bound, posts: 2, gets: 2, within: time.Second,
		},
		"carried out late": {
			bind:    script(late(10*time.Millisecond), reply{err: errTimeout}),
			outcome: Bound, state: ledger.Bound, posts: 2, gets: 2, within: time.Second,
		},
		"an answer that hangs": {
			bind:    script(reply{commit: before, hang: true}),
			outcome: Bound, state: ledger.Bound, posts: 1, gets: 1, within: 3 * time.Second,
		},
		"both hang once": {
			bind: script(reply{hang: true}), get: fail(1, context.DeadlineExceeded),
			outcome: Bound, state: ledger.Bound, posts: 2, gets: 1, within: 6 * time.Second,
		},
		"403": {bind: always(errForbidden), outcome: Failed, posts: 1},
		"422": {bind: always(errInvalid), outcome: Failed, posts: 1},
		"400": {bind: always(errBadRequest), outcome: Failed, posts: 1},
		"404": {
			setup:   func(w *world, p *v1.Pod) { w.api.remove(p) },
			outcome: PodGone, posts: 1,
		},
		"404 of a proxy":          {bind: always(errNoRoute), outcome: Failed, posts: 1},
		"429 once":                {bind: script(reply{err: errTooMany}), outcome: Bound, state: ledger.Bound, posts: 2, within: 2 * time.Second},
		"429 for ever":            {bind: always(errTooMany), outcome: Failed, posts: many, within: defaultTimeout},
		"nobody listens, once":    {bind: script(reply{err: errRefused}), outcome: Bound, state: ledger.Bound, posts: 2, within: time.Second},
		"nobody listens for ever": {bind: always(errRefused), outcome: Failed, posts: many, within: defaultTimeout},
		"409: bound elsewhere": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.NodeName = "b" },
			outcome: BoundElsewhere, posts: 1, gets: 1,
		},
		"409: bound to our node by somebody else": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.NodeName = "a" },
			outcome: Bound, state: ledger.Bound, posts: 1, gets: 1,
		},
		"409: being deleted": {
			setup:   func(w *world, p *v1.Pod) { p.DeletionTimestamp = &now },
			outcome: PodGone, posts: 1, gets: 1,
		},
		"409: gated": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} },
			outcome: Failed, posts: 1, gets: 1,
		},
		"409: another pod of that name": {
			setup:   func(w *world, p *v1.Pod) { p.UID = "new" },
			outcome: UIDMismatch, posts: 1, gets: 1,
		},
		"lost, and gone since": {
			setup:   func(w *world, p *v1.Pod) { w.api.remove(p) },
			bind:    script(unsent),
			outcome: PodGone, posts: 1, gets: 1,
		},
		"lost, and finished since": {
			setup:   func(w *world, p *v1.Pod) { p.Status.Phase = v1.PodFailed },
			bind:    script(unsent),
			outcome: PodGone, posts: 1, gets: 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod("p")
				pod := p.DeepCopy()
				w := newWorld(t, p)
				if tt.setup != nil {
					tt.setup(w, p)
				}
				w.api.bind, w.api.get = tt.bind, tt.get
				start := time.Now()
				err := w.bindPod(pod, "a")
				assert.LessOrEqual(t, time.Since(start), tt.within)
				assertOutcome(t, tt.outcome, err)
				w.end()
				state, _ := w.state(pod)
				assert.Equal(t, tt.state, state)
				if tt.posts == many {
					assert.Greater(t, w.api.posts, 5, "POSTs")
				} else {
					assert.Equal(t, tt.posts, w.api.posts, "POSTs")
				}
				assert.Equal(t, tt.gets, w.api.gets, "GETs")
				assert.Equal(t, []Outcome{tt.outcome}, w.outcomes)
			})
		})
	}
}

func assertOutcome(t *testing.T, want Outcome, err error) {
	t.Helper()
	if want == Bound {
		require.NoError(t, err)
		return
	}
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, want, e.Outcome, "%v", err)
	assert.Equal(t, string(want), e.Result())
	assert.ErrorIs(t, err, &Error{Outcome: want})
	assert.NotErrorIs(t, err, &Error{Outcome: "another"})
	assert.NotEmpty(t, err.Error())
}

// A live read that finds the pod bound tells the ledger, for the informer is
// behind and somebody else could be given that room.
func TestLiveReadOfBoundPodIsCounted(t *testing.T) {
	for node, outcome := range map[string]Outcome{"a": Bound, "b": BoundElsewhere} {
		t.Run(node, func(t *testing.T) {
			p := newPod("p")
			p.Spec.NodeName = node
			w := newWorld(t, p)
			clear(w.cache)
			assertOutcome(t, outcome, w.bindPod(p, "a"))
			claim, ok := w.ledger.Claim(w.info(p).Ref)
			require.True(t, ok)
			assert.Equal(t, node, claim.Node)
			assert.Equal(t, ledger.Bound, claim.State)
		})
	}
}

// TestBeforeSending covers what is decided without a POST, and where the pod
// comes from.
func TestBeforeSending(t *testing.T) {
	now := metav1.Now()
	tests := map[string]struct {
		setup   func(w *world, p *v1.Pod)
		outcome Outcome
		posts   int
		gets    int
		reason  ledger.Reason
	}{
		"informer behind, filter saw the pod": {
			setup: func(w *world, p *v1.Pod) {
				w.recent.Add(w.info(p))
				clear(w.cache)
			},
			outcome: Bound, posts: 1,
		},
		"informer behind, live read": {setup: func(w *world, p *v1.Pod) { clear(w.cache) }, outcome: Bound, posts: 1, gets: 1},
		"informer knows the pod before": {
			setup: func(w *world, p *v1.Pod) {
				old := p.DeepCopy()
				old.UID = "old"
				w.cache[key(p)] = w.info(old)
			},
			outcome: Bound, posts: 1, gets: 1,
		},
		"filter saw a pod of that UID under another name": {
			setup: func(w *world, p *v1.Pod) {
				other := p.DeepCopy()
				other.Name = "q"
				w.recent.Add(w.info(other))
				clear(w.cache)
			},
			outcome: Bound, posts: 1, gets: 1,
		},
		"a node with a new resource came after the pod": {
			setup: func(w *world, p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
				w.cache[key(p)] = w.info(p)
				w.recent.Add(w.info(p))
				gpu, ok := w.ledger.Table().Intern("example.com/gpu")
				require.True(w.t, ok)
				w.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Allocatable: []resources.Amount{
					{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 10}, {Column: gpu, Value: 1},
				}})
			},
			outcome: Bound, posts: 1, gets: 1,
		},
		"resized since the informer saw it, and larger than the node": {
			setup: func(w *world, p *v1.Pod) {
				p.ResourceVersion = "1"
				w.cache[key(p)] = w.info(p)
				p.ResourceVersion, p.Spec.Containers[0].Resources.Requests["cpu"] = "2", resource.MustParse("5")
				w.recent.Add(w.info(p))
			},
			outcome: Refused, reason: ledger.InsufficientResource,
		},
		"the informer knows a newer one than filter saw": {
			setup: func(w *world, p *v1.Pod) {
				p.ResourceVersion, p.Spec.Containers[0].Resources.Requests["cpu"] = "1", resource.MustParse("5")
				w.recent.Add(w.info(p))
				p.ResourceVersion, p.Spec.Containers[0].Resources.Requests["cpu"] = "2", resource.MustParse("1")
				w.cache[key(p)] = w.info(p)
			},
			outcome: Bound, posts: 1,
		},
		"no such pod": {
			setup: func(w *world, p *v1.Pod) {
				clear(w.cache)
				w.api.remove(p)
			},
			outcome: PodGone, gets: 1,
		},
		"another UID": {
			setup: func(w *world, p *v1.Pod) {
				clear(w.cache)
				p.UID = "new"
			},
			outcome: UIDMismatch, gets: 1,
		},
		"the live read fails": {
			setup: func(w *world, p *v1.Pod) {
				clear(w.cache)
				w.api.get = fail(1, errInternal)
			},
			outcome: Failed, gets: 1,
		},
		"a pod that cannot be counted": {
			setup: func(w *world, p *v1.Pod) {
				clear(w.cache)
				p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
			},
			outcome: Failed, gets: 1,
		},
		"bound to the node already": {
			setup: func(w *world, p *v1.Pod) {
				p.Spec.NodeName = "a"
				w.cache[key(p)] = w.info(p)
			},
			outcome: Bound,
		},
		"bound to another node already": {
			setup: func(w *world, p *v1.Pod) {
				p.Spec.NodeName = "b"
				w.cache[key(p)] = w.info(p)
			},
			outcome: BoundElsewhere,
		},
		"being deleted": {
			setup: func(w *world, p *v1.Pod) {
				p.DeletionTimestamp = &now
				w.cache[key(p)] = w.info(p)
			},
			outcome: PodGone,
		},
		"finished on that node": {
			setup: func(w *world, p *v1.Pod) {
				p.Spec.NodeName, p.Status.Phase = "a", v1.PodSucceeded
				w.cache[key(p)] = w.info(p)
			},
			outcome: PodGone,
		},
		"the ledger knows it is bound there": {
			setup: func(w *world, p *v1.Pod) {
				bound := p.DeepCopy()
				bound.Spec.NodeName = "a"
				w.observe(bound)
			},
			outcome: Bound,
		},
		"somebody else is binding it": {
			setup: func(w *world, p *v1.Pod) {
				placement := w.info(p).Placement("a")
				_, rejection := w.ledger.StartBind(&placement, time.Now())
				require.Nil(w.t, rejection)
			},
			outcome: InFlight,
		},
		"a reservation on that node": {
			setup: func(w *world, p *v1.Pod) {
				plan := ledger.Plan{Placements: []ledger.Placement{w.info(p).Placement("a")}, Deadline: time.Now().Add(time.Minute)}
				require.Equal(w.t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
			},
			outcome: Bound, posts: 1,
		},
		"a reservation on another node": {
			setup: func(w *world, p *v1.Pod) {
				plan := ledger.Plan{Placements: []ledger.Placement{w.info(p).Placement("b")}, Deadline: time.Now().Add(time.Minute)}
				require.Equal(w.t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
			},
			outcome: Refused, reason: ledger.ClaimedElsewhere,
		},
		"no room": {
			setup: func(w *world, p *v1.Pod) {
				for k := range 4 {
					other := newPod(fmt.Sprint(k))
					other.Spec.NodeName = "a"
					w.observe(other)
				}
			},
			outcome: Refused, reason: ledger.InsufficientResource,
		},
		"unknown node": {
			setup:   func(w *world, p *v1.Pod) { w.ledger.RemoveNode("a") },
			outcome: Refused, reason: ledger.NodeUnknown,
		},
		"the ledger knows it is gone": {
			setup:   func(w *world, p *v1.Pod) { w.ledger.RemovePod(ref(p), 0) },
			outcome: Refused, reason: ledger.PodGone,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod("p")
				pod := p.DeepCopy()
				w := newWorld(t, p)
				tt.setup(w, p)
				err := w.bindPod(pod, "a")
				assertOutcome(t, tt.outcome, err)
				assert.Equal(t, tt.posts, w.api.posts, "POSTs")
				assert.Equal(t, tt.gets, w.api.gets, "GETs")
				if tt.posts == 0 {
					assert.Empty(t, w.outcomes, "nothing was sent")
				}
				if tt.outcome == Refused {
					var e *Error
					require.ErrorAs(t, err, &e)
					assert.Equal(t, tt.reason, e.Refusal().Reason)
				}
				w.end()
			})
		})
	}
}

// TestUnknown covers binds whose outcome is not known at their deadline.
func TestUnknown(t *testing.T) {
	const outage = time.Minute
	tests := map[string]struct {
		// bind and get are scripts by the time since the bind was asked for.
		bind    func(since time.Duration) reply
		get     func(since time.Duration) error
		outcome Outcome // in the end
		state   ledger.State
		within  time.Duration // of the final outcome
	}{
		"the API server is away after it committed": {
			bind: func(since time.Duration) reply {
				if since == 0 {
					return lost
				}
				return reply{err: errRefused}
			},
			get:     func(since time.Duration) error { return errIf(since < outage, errRefused) },
			outcome: Bound, state: ledger.Bound, within: outage + 10*time.Second,
		},
		"the API server is away, then binds": {
			bind: func(since time.Duration) reply {
				if since < outage {
					return reply{hang: true}
				}
				return honest
			},
			get:     func(since time.Duration) error { return errIf(since < outage, context.DeadlineExceeded) },
			outcome: Bound, state: ledger.Bound, within: outage + 15*time.Second,
		},
		"rights are withdrawn after a POST that was lost": {
			bind: func(since time.Duration) reply {
				if since == 0 {
					return unsent
				}
				return reply{err: errForbidden}
			},
			outcome: Failed, within: defaultSettle + 10*time.Second,
		},
		"rights are withdrawn after a POST that is carried out late": {
			bind: func(since time.Duration) reply {
				if since == 0 {
					return late(55 * time.Second)
				}
				return reply{err: errForbidden}
			},
			outcome: Bound, state: ledger.Bound, within: 65 * time.Second,
		},
		"500 for ever": {
			bind:    func(time.Duration) reply { return reply{err: errInternal} },
			outcome: Failed, within: 2*defaultSettle + defaultTimeout + 10*time.Second,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod("p")
				w := newWorld(t, p)
				start := time.Now()
				w.api.bind = func(int) reply { return tt.bind(time.Since(start)) }
				if tt.get != nil {
					w.api.get = func(int) error { return tt.get(time.Since(start)) }
				}
				err := w.bindPod(p, "a")
				assertOutcome(t, Unknown, err)
				require.ErrorIs(t, err, ErrUnknownOutcome)
				assert.Equal(t, defaultTimeout, time.Since(start), "callers are answered in time")
				state, node := w.state(p)
				assert.Equal(t, ledger.Binding, state, "the room must not be given away")
				assert.Equal(t, "a", node)
				assertOutcome(t, Refused, w.bindPod(p, "b"))
				assertOutcome(t, Unknown, w.bindPod(p, "a"))

				w.wait()
				assert.LessOrEqual(t, time.Since(start), tt.within)
				state, _ = w.state(p)
				assert.Equal(t, tt.state, state)
				assert.Equal(t, []Outcome{Unknown, tt.outcome}, w.outcomes)
				w.end()
				if tt.outcome == Bound {
					assert.Equal(t, "a", w.api.read("ns", "p").Spec.NodeName)
				}
			})
		})
	}
}

func errIf(when bool, err error) error {
	if when {
		return err
	}
	return nil
}

// wait lets all flights end.
func (w *world) wait() {
	w.Binder.mu.Lock()
	var flights []*flight
	for _, f := range w.flights {
		flights = append(flights, f)
	}
	w.Binder.mu.Unlock()
	for _, f := range flights {
		<-f.done
	}
}

// TestObservationEndsFlight: what the informers say spares asking the API server.
func TestObservationEndsFlight(t *testing.T) {
	tests := map[string]struct {
		observe func(w *world, p *v1.Pod)
		outcome Outcome
		state   ledger.State
		node    string
	}{
		"bound here": {
			observe: func(w *world, p *v1.Pod) { w.observeOn(p, "a") }, outcome: Bound, state: ledger.Bound, node: "a",
		},
		"bound elsewhere": {
			observe: func(w *world, p *v1.Pod) { w.observeOn(p, "b") }, outcome: BoundElsewhere, state: ledger.Bound, node: "b",
		},
		"deleted": {
			observe: func(w *world, p *v1.Pod) { w.ledger.RemovePod(ref(p), 0) }, outcome: PodGone,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod("p")
				w := newWorld(t, p)
				w.api.bind = always(errReset)
				w.api.get = func(int) error { return errReset }
				result := make(chan error, 1)
				go func() { result <- w.bindPod(p, "a") }()
				synctest.Wait()
				tt.observe(w, p)
				assertOutcome(t, tt.outcome, <-result)
				state, node := w.state(p)
				assert.Equal(t, tt.state, state)
				assert.Equal(t, tt.node, node)
				assert.Equal(t, 1, w.api.posts)
				w.end()
			})
		})
	}
}

func (w *world) observeOn(p *v1.Pod, node string) {
	bound := p.DeepCopy()
	bound.Spec.NodeName = node
	w.observe(bound)
}

func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = script(reply{commit: before, hang: true})
		hungUp, hangUp := context.WithCancel(t.Context())
		results := make(chan error, 3)
		go func() {
			_, err := w.Bind(hungUp, ref(p), "a")
			results <- err
		}()
		synctest.Wait()
		for range 2 {
			go func() { results <- w.bindPod(p, "a") }()
		}
		synctest.Wait()
		assertOutcome(t, Refused, w.bindPod(p, "b"))

		hangUp()
		err := <-results
		assertOutcome(t, Unknown, err)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, <-results, "the bind goes on without the caller that began it")
		require.NoError(t, <-results)
		assert.Equal(t, 1, w.api.posts)
		require.NoError(t, w.bindPod(p, "a"), "again, after it ended")
		assert.Equal(t, 1, w.api.posts)
		w.end()
	})
}

func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPod("p"), newPod("q")
		w := newWorld(t, p, q)
		w.Binder = w.newBinder(Options{MaxInFlight: 1})
		w.api.bind = script(reply{commit: before, hang: true})
		result := make(chan error, 1)
		go func() { result <- w.bindPod(p, "a") }()
		synctest.Wait()
		err := w.bindPod(q, "a")
		require.ErrorIs(t, err, ErrBusy)
		require.NotEmpty(t, err.Error())
		require.NoError(t, <-result)
		require.NoError(t, w.bindPod(q, "a"))
		w.end()
	})
}

func TestStop(t *testing.T) {
	t.Run("waits for answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPod("p")
			w := newWorld(t, p)
			w.api.bind = script(reply{commit: before, hang: true})
			result := make(chan error, 1)
			go func() { result <- w.bindPod(p, "a") }()
			synctest.Wait()
			require.NoError(t, w.Stop(t.Context()))
			require.NoError(t, <-result)
			require.ErrorIs(t, w.bindPod(newPod("q"), "a"), ErrStopping)
			state, _ := w.state(p)
			assert.Equal(t, ledger.Bound, state)
		})
	})
	t.Run("does not wait for what nobody waits for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPod("p")
			w := newWorld(t, p)
			w.api.bind = always(errReset)
			w.api.get = func(int) error { return errReset }
			require.ErrorIs(t, w.bindPod(p, "a"), ErrUnknownOutcome)
			start := time.Now()
			require.NoError(t, w.Stop(t.Context()))
			assert.Zero(t, time.Since(start))
			state, _ := w.state(p)
			assert.Equal(t, ledger.Binding, state)
		})
	})
	t.Run("cuts off at the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, q := newPod("p"), newPod("q")
			w := newWorld(t, p, q)
			w.api.bind = func(n int) reply {
				if n == 0 {
					return reply{hang: true}
				}
				return reply{err: errTooMany}
			}
			lost, refused := make(chan error, 1), make(chan error, 1)
			go func() { lost <- w.bindPod(p, "a") }()
			synctest.Wait()
			go func() { refused <- w.bindPod(q, "a") }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			err := w.Stop(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, <-lost, ErrUnknownOutcome)
			require.Error(t, <-refused)
			state, _ := w.state(p)
			assert.Equal(t, ledger.Binding, state)
			state, _ = w.state(q)
			assert.Equal(t, ledger.NoClaim, state, "certainly not bound")
		})
	})
}

func TestBindingSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		var got *v1.Binding
		w.api.onBind = func(b *v1.Binding) { got = b }
		info, err := w.Bind(t.Context(), ref(p), "a")
		require.NoError(t, err)
		assert.Equal(t, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-p"},
			Target:     v1.ObjectReference{Kind: "Node", Name: "a"},
		}, got)
		assert.Equal(t, "scheduler", info.Scheduler)
		w.end()
	})
}

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		err  error
		want answer
	}{
		"success":             {nil, answerBound},
		"no pod":              {apierrors.NewNotFound(pods, "p"), answerNoPod},
		"no namespace":        {apierrors.NewNotFound(v1.Resource("namespaces"), "ns"), answerRefused},
		"404 of a proxy":      {errNoRoute, answerRefused},
		"403":                 {errForbidden, answerRefused},
		"422":                 {errInvalid, answerRefused},
		"401":                 {apierrors.NewUnauthorized("who"), answerRefused},
		"409":                 {errStorage, answerConflict},
		"429":                 {errTooMany, answerNotSent},
		"408":                 {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 408}}, answerUnknown},
		"500":                 {errInternal, answerUnknown},
		"503":                 {apierrors.NewServiceUnavailable("x"), answerUnknown},
		"504":                 {apierrors.NewTimeoutError("x", 1), answerUnknown},
		"status without code": {&apierrors.StatusError{}, answerUnknown},
		"wrapped":             {fmt.Errorf("x: %w", errForbidden), answerRefused},
		"dial":                {fmt.Errorf("x: %w", errRefused), answerNotSent},
		"reset":               {errReset, answerUnknown},
		"EOF":                 {io.ErrUnexpectedEOF, answerUnknown},
		"deadline":            {context.DeadlineExceeded, answerUnknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, classify(tt.err)) })
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(Options{})
	require.ErrorContains(t, err, "required")
	_, err = New(Options{Ledger: ledger.New(ledger.Options{}), Client: newFakeAPI(), Pods: cache{}, Timeout: -1})
	require.ErrorContains(t, err, "negative")
}

func TestRecent(t *testing.T) {
	r := NewRecent(2)
	pod := func(uid types.UID) *podinfo.Info { return &podinfo.Info{Ref: ledger.PodRef{UID: uid}} }
	a := pod("a")
	r.Add(pod("a"))
	r.Add(pod("b"))
	r.Add(a)
	r.Add(pod("c"))
	got, ok := r.Get("a")
	assert.True(t, ok)
	assert.Same(t, a, got)
	_, ok = r.Get("b")
	assert.False(t, ok, "the one not used for longest goes")
	r.Add(pod("d"))
	_, ok = r.Get("c")
	assert.False(t, ok)
}
