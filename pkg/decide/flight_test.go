package decide

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestUnknown covers binds whose outcome is not known at their deadline.
func TestUnknown(t *testing.T) {
	const outage = time.Minute
	type testCase struct {
		// bind and get are scripts by the time since the bind was asked for.
		bind    func(since time.Duration) reply
		get     func(since time.Duration) error
		outcome gates.Outcome // in the end
		within  time.Duration // of the final outcome
	}
	bubble.Each(t, map[string]testCase{
		"the API server is away after it committed": {
			bind: func(since time.Duration) reply {
				if since == 0 {
					return lost
				}
				return reply{err: errRefused}
			},
			get:     func(since time.Duration) error { return errIf(since < outage, errRefused) },
			outcome: gates.Bound, within: outage + 10*time.Second,
		},
		"the API server is away, then binds": {
			bind: func(since time.Duration) reply {
				if since < outage {
					return reply{hang: true}
				}
				return honest
			},
			get:     func(since time.Duration) error { return errIf(since < outage, context.DeadlineExceeded) },
			outcome: gates.Bound, within: outage + 15*time.Second,
		},
		"rights are withdrawn after a POST that was lost": {bind: func(since time.Duration) reply {
			if since == 0 {
				return unsent
			}
			return reply{err: errForbidden}
		}, outcome: gates.Failed, within: bindSettle + 10*time.Second},
		"rights are withdrawn after a POST that is carried out late": {bind: func(since time.Duration) reply {
			if since == 0 {
				return late(55 * time.Second)
			}
			return reply{err: errForbidden}
		}, outcome: gates.Bound, within: 65 * time.Second},
		"500 for ever": {
			bind:    func(time.Duration) reply { return reply{err: errInternal} },
			outcome: gates.Failed, within: 2*bindSettle + bindTimeout + 10*time.Second,
		},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		start := time.Now()
		w.api.bind = func(int) reply { return tt.bind(time.Since(start)) }
		if tt.get != nil {
			w.api.get = func(int) error { return tt.get(time.Since(start)) }
		}
		err := w.bindPod(p, "a")
		assertOutcome(t, gates.Unknown, err)
		require.ErrorIs(t, err, &gates.Error{Outcome: gates.Unknown})
		assert.Equal(t, bindTimeout, time.Since(start), "callers are answered in time")
		assert.Equal(t, "Binding on a", w.on(ref(p)), "the capacity must not be given away")
		assertOutcome(t, gates.Refused, w.bindPod(p, "b"))
		assertOutcome(t, gates.Unknown, w.bindPod(p, "a"))
		<-time.After(outage / 3)
		assert.Equal(t, map[string]int{string(gates.Unknown): 1}, w.outcomes(), "counted before it is known")

		w.wait()
		assert.LessOrEqual(t, time.Since(start), tt.within)
		assert.Equal(t, settled(tt.outcome), w.on(ref(p)))
		assert.Equal(t, map[string]int{string(gates.Unknown): 1, string(tt.outcome): 1}, w.outcomes())
		w.end()
		if tt.outcome == gates.Bound {
			assert.Equal(t, "a", w.api.read("ns", "p").Spec.NodeName)
		}
	})
}

func errIf(when bool, err error) error {
	if when {
		return err
	}
	return nil
}

// wait lets all flights end.
func (w *world) wait() {
	w.mu.Lock()
	var flights []*flight
	for _, f := range w.flights {
		flights = append(flights, f)
	}
	w.mu.Unlock()
	for _, f := range flights {
		<-f.done
	}
}

// TestObservationEndsFlight: what the informers say spares asking the API server.
func TestObservationEndsFlight(t *testing.T) {
	type testCase struct {
		observe func(w *world, p *v1.Pod)
		outcome gates.Outcome
		want    string
	}
	bubble.Each(t, map[string]testCase{
		"bound here": {observe: func(w *world, p *v1.Pod) { w.observeOn(p, "a") }, outcome: gates.Bound, want: "Bound on a"},
		"bound elsewhere": {
			observe: func(w *world, p *v1.Pod) { w.observeOn(p, "b") }, outcome: gates.BoundElsewhere, want: "Bound on b",
		},
		"deleted": {
			observe: func(w *world, p *v1.Pod) { w.ledger.RemovePod(ref(p), 0) }, outcome: gates.PodGone, want: "none",
		},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = always(errReset)
		w.api.get = func(int) error { return errReset }
		result := make(chan error, 1)
		go func() { result <- w.bindPod(p, "a") }()
		synctest.Wait()
		tt.observe(w, p)
		assertOutcome(t, tt.outcome, <-result)
		assert.Equal(t, tt.want, w.on(ref(p)))
		assert.Equal(t, 1, w.api.posts)
	})
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
			_, err := w.Bind(auth.Inside(hungUp), ref(p), "a")
			results <- err
		}()
		synctest.Wait()
		for range 2 {
			go func() { results <- w.bindPod(p, "a") }()
		}
		synctest.Wait()
		assertOutcome(t, gates.Refused, w.bindPod(p, "b"))

		hangUp()
		err := <-results
		assertOutcome(t, gates.Unknown, err)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, <-results, "the bind goes on without the caller that began it")
		require.NoError(t, <-results)
		assert.Equal(t, 1, w.api.posts)
		require.NoError(t, w.bindPod(p, "a"), "again, after it ended")
		assert.Equal(t, 1, w.api.posts)
	})
}

func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPod("p"), newPod("q")
		w := newWorld(t, p, q)
		w.Arbiter = w.newArbiter(Options{MaxInFlight: 1})
		w.api.bind = script(reply{commit: before, hang: true})
		result := make(chan error, 1)
		go func() { result <- w.bindPod(p, "a") }()
		synctest.Wait()
		err := w.bindPod(q, "a")
		require.ErrorIs(t, err, &gates.Error{Outcome: gates.Busy})
		require.NotEmpty(t, err.Error())
		require.NoError(t, <-result)
		require.NoError(t, w.bindPod(q, "a"))
	})
}

// Stop waits for answers, not for what nobody waits for, and cuts off at its deadline.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = script(reply{commit: before, hang: true})
		result := make(chan error, 1)
		go func() { result <- w.bindPod(p, "a") }()
		synctest.Wait()
		require.NoError(t, w.Stop(t.Context()))
		require.NoError(t, <-result)
		require.ErrorIs(t, w.bindPod(newPod("q"), "a"), &gates.Error{Outcome: gates.Stopping})
		assert.Equal(t, "Bound on a", w.on(ref(p)))
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = always(errReset)
		w.api.get = func(int) error { return errReset }
		require.ErrorIs(t, w.bindPod(p, "a"), &gates.Error{Outcome: gates.Unknown})
		start := time.Now()
		require.NoError(t, w.Stop(t.Context()))
		assert.Zero(t, time.Since(start))
		assert.Equal(t, "Binding on a", w.on(ref(p)))
	})
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
		require.ErrorIs(t, <-lost, &gates.Error{Outcome: gates.Unknown})
		require.Error(t, <-refused)
		assert.Equal(t, "Binding on a", w.on(ref(p)))
		assert.Equal(t, "none", w.on(ref(q)), "certainly not bound")
	})
}

// A server that does not decide any more sends no Binding again, whatever became of the last one: without the fence the
// next leader waits for one request only.
func TestNoBindingIsRepeatedAfterTheLease(t *testing.T) {
	type testCase struct {
		answer  error
		outcome gates.Outcome
	}
	bubble.Each(t, map[string]testCase{
		"none may be under way": {apierrors.NewTooManyRequests("later", 1), gates.NotReady},
		"one may be under way":  {errReset, gates.Unknown},
	}, func(t *testing.T, tc testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		w.api.bind = func(n int) reply {
			if n == 2 {
				w.undecided.Store(new("another server may be deciding by now"))
			}
			return reply{err: tc.answer}
		}
		var e *gates.Error
		require.ErrorAs(t, w.bindPod(p, "a"), &e)
		assert.Equal(t, tc.outcome, e.Outcome)
		assert.Equal(t, 3, w.api.posts)
		assert.Equal(t, tc.outcome == gates.Unknown, w.on(ref(p)) == "Binding on a")
		<-time.After(time.Minute)
		assert.Equal(t, 3, w.api.posts)
	})
}

// Only so many Bindings are under way at the API server at a time; the others wait for their turn, and those whose time
// is over by then were never sent.
func TestBindsTakeTurns(t *testing.T) {
	type testCase struct {
		hang  time.Duration // how long each of the first takes
		bound int
	}
	bubble.Each(t, map[string]testCase{
		"slow":  {hang: time.Second, bound: maxPosts + 6},
		"stuck": {hang: bindTimeout + time.Second, bound: maxPosts},
	}, func(t *testing.T, tc testCase) {
		var pods []*v1.Pod
		for i := range maxPosts + 6 {
			pods = append(pods, newPod("p"+strconv.Itoa(i)))
		}
		w := newWorld(t, pods...)
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "large", Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 1000000}, {Column: resources.Pods, Value: 1000},
		}})
		slow := &slowAPI{fakeAPI: w.api, took: tc.hang}
		w.o.API = slow
		errs := make(chan error, len(pods))
		for _, p := range pods {
			go func() { errs <- w.bindPod(p, "large") }()
		}
		synctest.Wait()
		w.api.change(func() { assert.Equal(t, maxPosts, w.api.posts) })
		bound := 0
		for range pods {
			if err := <-errs; err == nil {
				bound++
			}
		}
		w.end()
		w.api.change(func() { assert.Equal(t, tc.bound, w.api.posts, "POSTs") })
		if tc.hang < bindTimeout {
			assert.Equal(t, len(pods), bound)
		}
	})
}

// slowAPI takes its time to bind.
type slowAPI struct {
	*fakeAPI
	took time.Duration
}

func (a *slowAPI) Bind(ctx context.Context, binding *v1.Binding) error {
	err := a.fakeAPI.Bind(ctx, binding)
	informer.Pause(context.WithoutCancel(ctx), a.took)
	return err
}

// Answers that come too late halve the Bindings under way, and good ones bring them back.
func TestTurnsAfterSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		round := func(slow bool) (n int) {
			for len(turns.places) < maxPosts {
				require.True(t, turns.take(t.Context()))
				n++
			}
			for range n {
				turns.release(slow)
			}
			return n
		}
		assert.Equal(t, maxPosts, round(true))
		assert.Equal(t, maxPosts/2, round(true), "of answers that come together the first counts")
		assert.Equal(t, maxPosts/2, round(false))
		assert.Equal(t, maxPosts/2+1, round(false))
		for range 10 {
			assert.True(t, informer.Pause(t.Context(), slowFor))
			round(true)
		}
		assert.Equal(t, leastPosts, round(false))
		for range maxPosts {
			round(false)
		}
		assert.Equal(t, maxPosts, round(false))
		assert.Empty(t, turns.places)
	})
}
