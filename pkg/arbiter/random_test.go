package arbiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// scenario is what happens to some pods that are all to be bound to node a,
// which has capacity for four.
type scenario struct {
	pods []podScenario
	gets []error // what the first GETs end with
}

type podScenario struct {
	binds   []time.Duration // when somebody asks for the bind
	replies []reply         // what becomes of its first POSTs
	// deleted is when the pod is marked as being deleted, removed when it goes;
	// taken when somebody else binds it to node b. Zero is never.
	deleted, removed, taken time.Duration
}

// lateness stays below Settle: the API server abandons requests in time.
func drawReply(t *rapid.T) reply {
	r := reply{
		commit: rapid.SampledFrom([]when{never, before, later}).Draw(t, "commit"),
		hang:   rapid.IntRange(0, 4).Draw(t, "hang") == 0,
	}
	if r.commit == later {
		r.after = time.Duration(rapid.IntRange(0, 60_000).Draw(t, "after")) * time.Millisecond
	}
	honest := r.commit == before && rapid.Bool().Draw(t, "honest")
	if !honest {
		r.err = rapid.SampledFrom([]error{errReset, errInternal, errTimeout, errStorage}).Draw(t, "error")
	}
	if r.commit == never && rapid.Bool().Draw(t, "definite") {
		r.err = rapid.SampledFrom([]error{errForbidden, errTooMany, errRefused, errNoRoute}).Draw(t, "definite error")
		r.hang = false
	}
	return r
}

func drawScenario(t *rapid.T) scenario {
	moment := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond
	})
	seldom := func(name string) time.Duration {
		if rapid.IntRange(0, 3).Draw(t, name) > 0 {
			return 0
		}
		return moment.Draw(t, name) + time.Nanosecond
	}
	return scenario{
		pods: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) podScenario {
			return podScenario{
				binds:   rapid.SliceOfN(moment, 1, 3).Draw(t, "binds"),
				replies: rapid.SliceOfN(rapid.Custom(drawReply), 0, 6).Draw(t, "replies"),
				deleted: seldom("deleted"), removed: seldom("removed"), taken: seldom("taken"),
			}
		}), 1, 7).Draw(t, "pods"),
		gets: rapid.SliceOfN(rapid.SampledFrom([]error{nil, nil, errReset, errInternal, context.DeadlineExceeded}), 0, 12).
			Draw(t, "gets"),
	}
}

// TestRandomOutcomes: whatever the API server does, node a never gets more than
// it has capacity for, and in the end the ledger says of each pod what the API
// server says.
func TestRandomOutcomes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		var err error
		synctest.Test(t, func(t *testing.T) { err = s.play(t) })
		if err != nil {
			rt.Fatalf("%v in %+v", err, s)
		}
	})
}

func (s *scenario) play(t *testing.T) error {
	w := newWorld(t)
	posts := map[string]int{}
	current := ""
	w.api.onBind = func(b *v1.Binding) { current = b.Name }
	w.api.get = func(n int) error {
		if n < len(s.gets) {
			return s.gets[n]
		}
		return nil
	}
	w.api.bind = func(int) reply {
		var k int
		_, _ = fmt.Sscanf(current, "p%d", &k)
		n := posts[current]
		posts[current]++
		if n < len(s.pods[k].replies) {
			return s.pods[k].replies[n]
		}
		return honest
	}
	var crowded error
	w.api.onCommit = func() { crowded = errors.Join(crowded, w.crowded()) }

	var wg sync.WaitGroup
	pods := make([]*v1.Pod, len(s.pods))
	for k := range s.pods {
		pods[k] = newPod(fmt.Sprintf("p%d", k))
		w.api.put(pods[k])
		w.bring(pods[k])
	}
	for k := range s.pods {
		s.pods[k].play(w, &wg, pods[k])
	}
	wg.Wait()
	w.wait()
	w.api.late.Wait()
	if crowded != nil {
		return crowded
	}
	for k := range s.pods {
		if err := w.agrees(newPod(fmt.Sprintf("p%d", k)), s.pods[k].removed > 0); err != nil {
			return err
		}
	}
	w.end()
	return nil
}

// play starts everything that happens to a pod.
func (s *podScenario) play(w *world, wg *sync.WaitGroup, p *v1.Pod) {
	at := func(when time.Duration, what func()) {
		if when > 0 {
			wg.Go(func() {
				<-time.After(when)
				what()
			})
		}
	}
	reference := p.DeepCopy()
	for _, when := range s.binds {
		at(when+1, func() { _ = w.bindPod(reference, "a") })
	}
	at(s.deleted, func() { w.api.change(func() { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }) })
	at(s.removed, func() { w.api.remove(p) })
	at(s.taken, func() {
		w.api.change(func() {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				p.Spec.NodeName = "b"
			}
		})
	})
}

// crowded reports a node a that has more than fits; the API is locked.
func (w *world) crowded() error {
	count := 0
	for _, p := range w.api.pods {
		if p.Spec.NodeName == "a" {
			count++
		}
	}
	if count > 4 {
		return fmt.Errorf("%d pods are on a node with capacity for 4", count)
	}
	return nil
}

// agrees compares a pod's allocation with the API server. A pod that somebody else
// bound, or that was deleted after it was bound, is for the informers to report.
func (w *world) agrees(p *v1.Pod, removed bool) error {
	allocation, _ := w.ledger.Allocation(ref(p))
	live := w.api.read(p.Namespace, p.Name)
	switch {
	case allocation.State == ledger.Binding:
		return fmt.Errorf("pod %s is left %s", p.Name, allocation.State)
	case live == nil && removed, live != nil && live.Spec.NodeName == "b":
		return nil
	case live.Spec.NodeName != allocation.Node:
		return fmt.Errorf("pod %s is on %q, in the ledger on %q", p.Name, live.Spec.NodeName, allocation.Node)
	}
	return nil
}
