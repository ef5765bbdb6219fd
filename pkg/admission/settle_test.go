package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/admission"
)

// grace is the default, and afterGrace a moment at which a binding has been settled if it can be.
const (
	grace      = 3 * time.Second
	afterGrace = grace + time.Second
)

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// inBubble runs a test with a clock of its own and a running loop.
func inBubble(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.start()
		test(t, w)
	})
}

func TestBindingThatHappensIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		allowed, _ := w.bind(binding("p", "a"))
		require.NoError(t, w.carryOut(allowed))
		w.show("p")
		pass(afterGrace)
		assert.Equal(t, "Bound on a", w.state("p"))
		gets, patches := w.sent()
		assert.Zero(t, gets+patches, "the informer has told it all")
	})
}

func TestBindingThatHappenedUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		allowed, _ := w.bind(binding("p", "a"))
		require.NoError(t, w.carryOut(allowed))
		pass(afterGrace)
		assert.Equal(t, "Bound on a", w.state("p"))
		_, patches := w.sent()
		assert.Zero(t, patches)
	})
}

// What was allowed and has not happened is made impossible before its room is given back.
func TestBindingThatDoesNotHappen(t *testing.T) {
	cases := map[string]struct {
		meanwhile   func(*world)
		wantPatches int
	}{
		"still unbound": {meanwhile: func(*world) {}, wantPatches: 1},
		"changed":       {meanwhile: func(w *world) { w.change("p", func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} }) }, wantPatches: 1},
		"gone":          {meanwhile: func(w *world) { w.remove("p") }},
		"made again": {meanwhile: func(w *world) {
			p := pod("p", "3")
			p.UID = "another"
			w.put(p)
		}},
		"being deleted": {meanwhile: func(w *world) {
			w.change("p", func(p *v1.Pod) { p.DeletionTimestamp = p.CreationTimestamp.DeepCopy() })
		}},
		"bound elsewhere": {meanwhile: func(w *world) { w.change("p", func(p *v1.Pod) { p.Spec.NodeName = "b" }) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.add(pod("p", "3"))
				allowed, _ := w.bind(binding("p", "a"))
				tc.meanwhile(w)
				pass(grace - time.Second)
				assert.Equal(t, "Binding on a", w.state("p"))
				pass(2 * time.Second)
				assert.Equal(t, "none", w.state("p"))
				_, patches := w.sent()
				assert.Equal(t, tc.wantPatches, patches)
				assert.Equal(t, 1, w.count("withdrawn"))
				require.Error(t, w.carryOut(allowed), "too late")
			})
		})
	}
}

// The binding is carried out between our look at the pod and the patch.
func TestBindingThatHappensAtTheLastMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		allowed, _ := w.bind(binding("p", "a"))
		w.beforePatch(func() { assert.NoError(t, w.carryOut(allowed)) })
		pass(afterGrace)
		assert.Equal(t, "Bound on a", w.state("p"))
		_, patches := w.sent()
		assert.Equal(t, 1, patches)
	})
}

// The same binding is allowed once more while the first is being withdrawn: it may happen, so the
// room must stay.
func TestBindingAllowedAgainWhileItIsWithdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		first, _ := w.bind(binding("p", "a"))
		w.beforePatch(sync.OnceFunc(func() {
			_, refusal := w.bind(binding("p", "a"))
			assert.Nil(t, refusal)
		}))
		pass(grace + 500*time.Millisecond)
		assert.Equal(t, "Binding on a", w.state("p"))
		require.Error(t, w.carryOut(first))
		w.show("p")
		again, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		require.NoError(t, w.carryOut(again))
		w.show("p")
		pass(afterGrace)
		assert.Equal(t, "Bound on a", w.state("p"))
	})
}

// As long as nobody knows what became of the binding, its room stays taken.
func TestUnknownOutcomeKeepsTheRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		_, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		w.fail(errors.New("timeout"))
		pass(time.Minute)
		assert.Equal(t, "Binding on a", w.state("p"))
		gets, _ := w.sent()
		assert.Less(t, gets, 30, "the pauses grow")
		w.fail(nil)
		pass(6 * time.Second)
		assert.Equal(t, "none", w.state("p"))
	})
}

// Another webhook does not let the pod be patched. Its room is given back when the API server must have
// abandoned the binding, and not before.
func TestPodThatCannotBePatched(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		_, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		w.failPatches(apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("denied by a policy")))
		pass(44 * time.Second)
		assert.Equal(t, "Binding on a", w.state("p"))
		pass(10 * time.Second)
		assert.Equal(t, "none", w.state("p"))
	})
	inBubble(t, func(t *testing.T, w *world) { // one that was carried out all the same
		w.add(pod("p", "3"))
		allowed, _ := w.bind(binding("p", "a"))
		w.failPatches(errors.New("no"))
		pass(40 * time.Second)
		require.NoError(t, w.carryOut(allowed))
		pass(20 * time.Second)
		assert.Equal(t, "Bound on a", w.state("p"))
	})
}

// A 404 that is not the API server's word on the pod proves nothing.
func TestForeignNotFoundProvesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		_, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		w.fail(foreignNotFound())
		pass(time.Minute)
		assert.Equal(t, "Binding on a", w.state("p"))
	})
}

func TestSchedulerTurnsToAnotherNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "3"))
		first, _ := w.bind(binding("p", "a"))
		_, refusal := w.bind(binding("p", "b"))
		require.NotNil(t, refusal, "the first one may be on its way")
		pass(600 * time.Millisecond)
		second, refusal := w.bind(binding("p", "b"))
		require.Nil(t, refusal)
		assert.Equal(t, "Binding on b", w.state("p"))
		require.Error(t, w.carryOut(first))
		w.show("p")
		require.Error(t, w.carryOut(second), "the informer was behind: a conflict")
		second, refusal = w.bind(binding("p", "b"))
		require.Nil(t, refusal)
		require.NoError(t, w.carryOut(second))
		w.show("p")
		pass(afterGrace)
		assert.Equal(t, "Bound on b", w.state("p"))
	})
}

// The pod asks for more than when its binding was allowed first.
func TestPodGrowsBetweenTwoBindings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(pod("p", "1"))
		_, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		w.change("p", func(p *v1.Pod) { p.Spec = pod("p", "3").Spec })
		w.show("p")
		_, refusal = w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		w.add(pod("q", "2"))
		_, refusal = w.bind(binding("q", "a"))
		require.NotNil(t, refusal)
		assert.Contains(t, refusal.Message, "free 1000")
	})
}

func TestStopSettlesWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.hook.Start()
		w.add(pod("p", "1"))
		allowed, refusal := w.bind(binding("p", "a"))
		require.Nil(t, refusal)
		created := w.ask(review(t, "q", "pods", "", withNode("q", "1", "a")))
		require.True(t, created.Allowed)
		w.hook.Stop(t.Context())
		assert.Equal(t, "none", w.state("p"))
		require.Error(t, w.carryOut(allowed))
		assert.Contains(t, w.log.LastEntry().Message, "may still be carried out", "the pod cannot be fenced off")
	})
}

// Random bindings, repeats, failures, deletions and outages: at no moment may the API server carry
// out a binding for which the ledger has no claim, nor a node have more than it offers.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *admission.Options) { o.Log = nil })
				w.hook.Start()
				runRandom(t, w, rand.New(rand.NewPCG(seed, 1)))
				w.hook.Stop(context.Background())
			})
		})
	}
}

func runRandom(t *testing.T, w *world, r *rand.Rand) {
	t.Helper()
	var inFlight []*v1.Binding
	next := 0
	for range 400 {
		name := fmt.Sprintf("p%d", r.IntN(next+1))
		switch r.IntN(10) {
		case 0, 1:
			w.add(pod(fmt.Sprintf("p%d", next), fmt.Sprint(1+r.IntN(3))))
			next++
		case 2, 3, 4:
			if allowed, refusal := w.bind(binding(name, []string{"a", "b"}[r.IntN(2)])); refusal == nil {
				inFlight = append(inFlight, allowed)
			}
		case 5, 6:
			if len(inFlight) > 0 {
				i := r.IntN(len(inFlight))
				_ = w.carryOut(inFlight[i])
				inFlight = append(inFlight[:i], inFlight[i+1:]...)
			}
		case 7:
			w.show(name)
		case 8:
			w.remove(name)
		case 9:
			w.fail([]error{nil, nil, nil, errors.New("away")}[r.IntN(4)])
			pass(time.Duration(r.IntN(4000)) * time.Millisecond)
			w.fail(nil)
		}
		w.checkTruth()
	}
}

// checkTruth fails if pods are bound at the API server beyond what nodes offer, or without a claim.
func (w *world) checkTruth() {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[string]int64{}
	for _, p := range w.live {
		if p.Spec.NodeName == "" {
			continue
		}
		used[p.Spec.NodeName] += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		state := w.state(p.Name)
		require.True(w.t, strings.HasSuffix(state, " on "+p.Spec.NodeName), "pod %s is on %s, its claim is %s", p.Name, p.Spec.NodeName, state)
	}
	for node, cpus := range used {
		require.LessOrEqual(w.t, cpus, int64(4), "node %s", node)
	}
}
