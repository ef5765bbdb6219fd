package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// run starts a cache in a bubble where time passes only when nothing else can,
// and stops it at the end; a goroutine left over fails the test.
func run(t *testing.T, f *fixture, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.enterBubble()
		defer background.Run(t, f.Run)()
		require.NoError(t, f.WaitForSync(t.Context()))
		synctest.Wait()
		test(t)
	})
}

func objects(o ...runtime.Object) []runtime.Object { return o }

func TestFirstStateReachesTheLedger(t *testing.T) {
	for name, noStreams := range map[string]bool{"streamed": false, "listed in pages": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(
				objects(
					aPod("bound", 2, on("n1")), aPod("leaving", 3, on("n1"), terminating),
					aPod("waiting", 4), aPod("done", 5, on("n1"), inPhase(v1.PodSucceeded)),
					aPod("broken", 6, on("n1"), inPhase(v1.PodFailed)), aPod("odd", 7, uncounted),
				),
				objects(aNode("n1", 1, "4"), aNode("n2", 1, "2", cordoned)),
			)
			f.connect(noStreams)
			run(t, f, func(t *testing.T) {
				assert.True(t, f.Synced())
				assert.Len(t, f.allPods(), 6)
				assert.Len(t, f.allNodes(), 2)
				var pending []string
				for pod := range f.PendingPods() {
					pending = append(pending, pod.Ref.Name)
					_, _ = f.Pod("default", "bound") // no lock is in the way
				}
				assert.ElementsMatch(t, []string{"waiting", "odd"}, pending)
				assert.NoError(t, f.PodError("default", "bound"))
				_, ok := f.Pod("default", "none")
				assert.False(t, ok)
				assert.NoError(t, f.PodError("default", "none"))
				view, allocations, known := f.ledger.Node("n1")
				require.True(t, known)
				assert.Equal(t, []string{"default/bound", "default/leaving"},
					[]string{allocations[0].Pod.String(), allocations[1].Pod.String()})
				assert.Len(t, allocations, 2)
				cpu := view.Amounts[slices.IndexFunc(view.Amounts,
					func(a ledger.AmountView) bool { return a.Resource == v1.ResourceCPU })]
				assert.Equal(t, ledger.AmountView{Resource: v1.ResourceCPU, Allocatable: 4000, Bound: 200, Free: 3800}, cpu)
				view, _, _ = f.ledger.Node("n2")
				assert.True(t, view.Unschedulable)
				assert.NotContains(t, f.told.take(), "bypassed default/bound", "what was there at the start asked nobody it could")
				if noStreams {
					assert.Greater(t, len(f.podServer.lists), 5, "listed page by page")
				} else {
					assert.Empty(t, f.podServer.lists)
				}
			})
		})
	}
}

func TestAPodWhoseRequestCannotBeCountedIsRefusedAndNotLost(t *testing.T) {
	f := newFixture(objects(aPod("odd", 2, uncounted)), objects(aNode("n1", 1, "4")))
	run(t, f, func(t *testing.T) {
		pod, ok := f.Pod("default", "odd")
		require.True(t, ok)
		assert.ErrorContains(t, f.PodError("default", "odd"), "memory")
		result := f.decides.Reserve(ledger.NewPlan([]ledger.Placement{pod.Placement("n1")}, ledger.AllOrNothing, time.Time{}),
			time.Now())
		require.Len(t, result.Rejections, 1)
		assert.Equal(t, string(Uncountable), result.Rejections[0].Resource)

		f.podServer.send(watch.Modified, aPod("odd", 3, on("n1"), uncounted))
		synctest.Wait()
		assert.NoError(t, f.PodError("default", "odd"), "what is on a node counts, whatever it is")
		assert.Equal(t, ledger.Bound, f.claim("odd").State)
	})
}

func TestEvents(t *testing.T) {
	type step struct {
		event watch.EventType
		pod   *v1.Pod
	}
	boundOn := func(node string) []step {
		return []step{{watch.Added, aPod("p", 10)}, {watch.Modified, aPod("p", 11, on(node))}}
	}
	bound, bypassed := []string{"bound default/p"}, []string{"bound default/p", "bypassed default/p"}
	tests := map[string]struct {
		before  func(f *fixture) // allocations made by decisions
		steps   []step
		want    string // state and node of the allocation of pod "p"
		told    []string
		pending bool
	}{
		"bound by somebody who did not ask":     {steps: boundOn("n1"), want: "Bound n1", told: bypassed},
		"reserved, then bound there":            {reserve("p", "n1"), boundOn("n1"), "Bound n1", bound, false},
		"reserved, then bound elsewhere":        {reserve("p", "n1"), boundOn("n2"), "Bound n2", bypassed, false},
		"bound into the slot kept for it alone": {keepSlot("p", "n1"), boundOn("n1"), "Bound n1", bound, false},
		"bound elsewhere than its slot":         {keepSlot("p", "n1"), boundOn("n2"), "Bound n2", bypassed, false},
		"a static pod's mirror": {
			steps: []step{{watch.Added, aPod("p", 10, on("n1"), mirror)}}, want: "Bound n1", told: bound,
		},
		"an update without a node, older than the reservation, releases nothing": {
			before: reserve("p", "n1"), steps: []step{{watch.Added, aPod("p", 10)}, {watch.Modified, aPod("p", 11)}},
			want: "Reserved n1", pending: true,
		},
		"a state older than the known one changes nothing": {
			steps: []step{{watch.Added, aPod("p", 12, on("n1"))}, {watch.Modified, aPod("p", 11)}},
			want:  "Bound n1", told: bypassed,
		},
		"reserved, then deleted unbound": {
			before: reserve("p", "n1"), steps: []step{{watch.Added, aPod("p", 10)}, {watch.Deleted, aPod("p", 11)}},
			told: []string{"gone default/p"},
		},
		"finished, then deleted, is told of once": {
			steps: []step{
				{watch.Added, aPod("p", 10, on("n1"))},
				{watch.Modified, aPod("p", 11, on("n1"), inPhase(v1.PodSucceeded))},
				{watch.Modified, aPod("p", 12, on("n1"), inPhase(v1.PodSucceeded))},
				{watch.Deleted, aPod("p", 13, on("n1"), inPhase(v1.PodSucceeded))},
			},
			told: slices.Concat(bypassed, []string{"gone default/p"}),
		},
		"a late state of a deleted pod does not bring it back": {
			steps: []step{
				{watch.Added, aPod("p", 10, on("n1"))},
				{watch.Deleted, aPod("p", 12, on("n1"))},
				{watch.Modified, aPod("p", 11, on("n1"))},
				{watch.Deleted, aPod("p", 12, on("n1"))},
			},
			told: slices.Concat(bypassed, []string{"gone default/p", "bound default/p", "gone default/p"}),
		},
		"the name is another pod's now: its former allocation goes": {
			steps: []step{
				{watch.Added, aPod("p", 10, on("n1"), withUID("former"))},
				{watch.Modified, aPod("p", 12, on("n2"))},
				{watch.Deleted, aPod("p", 11, on("n1"), withUID("former"))},
			},
			want: "Bound n2", told: slices.Concat(bypassed, []string{"gone default/p"}, bypassed),
		},
		"grown in place": {
			steps: []step{
				{watch.Added, aPod("p", 10, on("n1"))},
				{watch.Modified, aPod("p", 11, on("n1"), asking("300m"))},
			},
			want: "Bound n1", told: bypassed,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(nil, objects(aNode("n1", 1, "4"), aNode("n2", 2, "4")))
			run(t, f, func(t *testing.T) {
				if tt.before != nil {
					tt.before(f)
				}
				for _, s := range tt.steps {
					f.podServer.send(s.event, s.pod)
				}
				synctest.Wait()
				assert.Equal(t, tt.want, f.shareOf("p"))
				assert.Equal(t, tt.told, f.told.take())
				assert.Equal(t, tt.pending, len(slices.Collect(f.PendingPods())) == 1)
				last := tt.steps[len(tt.steps)-1]
				if allocation := f.claim("p"); allocation != nil && allocation.State == ledger.Bound &&
					last.event == watch.Modified {
					if r := f.reader.Compact(last.pod); r.Node == allocation.Node {
						assert.Equal(t, r.Request.Value(resources.CPU), allocation.Request.Value(resources.CPU))
					}
				}
			})
		})
	}
}

func reserve(pod, node string) func(*fixture) {
	return func(f *fixture) {
		f.decides.Reserve(ledger.NewPlan([]ledger.Placement{placement(f.Cache, aPod(pod, 10), node)}, ledger.AllOrNothing,
			time.Time{}), time.Now())
	}
}

// keepSlot keeps a slot of a reservation for one pod alone, as a durable gang does.
func keepSlot(pod, node string) func(*fixture) {
	return func(f *fixture) {
		p := placement(f.Cache, aPod(pod, 10), node)
		f.decides.Reserve(ledger.Plan{Slots: []ledger.Slot{{
			Ref:  ledger.SlotRef{Namespace: p.Pod.Namespace, Name: "gang", Slot: "0"},
			Node: node, Request: p.Request, Policy: ledger.Once, Pod: p.Pod,
		}}}, time.Now())
	}
}

func TestAGapInTheWatch(t *testing.T) {
	f := newFixture(
		objects(aPod("deleted", 2, on("n1")), aPod("kept", 3, on("n1")), aPod("anew", 4, on("n1"), withUID("former")),
			aPod("late", 5)),
		objects(aNode("n1", 1, "4"), aNode("gone", 1, "4"), aNode("anew", 1, "4", nodeUID("former"))),
	)
	run(t, f, func(t *testing.T) {
		reserve("late", "n1")(f)
		f.told.take()
		f.podServer.gap(20, aPod("kept", 3, on("n1")), aPod("anew", 15, on("n1")), aPod("late", 16, on("n1")),
			aPod("unasked", 17, on("n1")))
		f.nodeServer.gap(20, aNode("n1", 1, "4"), aNode("anew", 19, "8"))
		pass(time.Minute) // the reflectors' back-off

		assert.Nil(t, f.claim("deleted"))
		assert.Equal(t, ledger.Bound, f.claim("kept").State)
		assert.Equal(t, ledger.Bound, f.claim("anew").State)
		assert.Equal(t, ledger.Bound, f.claim("late").State)
		_, stillThere := f.ledger.Allocation(ledger.PodRef{Namespace: "default", Name: "anew", UID: "former"})
		assert.False(t, stillThere)
		told := f.told.take()
		require.Len(t, told, 7)
		assert.ElementsMatch(t, []string{"gone default/deleted", "gone default/anew"}, told[:2],
			"what went is given back first")
		assert.ElementsMatch(t, []string{
			"bound default/anew", "bypassed default/anew", "bound default/late",
			"bound default/unasked", "bypassed default/unasked",
		}, told[2:])
		assert.Len(t, f.allPods(), 4)
		assert.Len(t, f.allNodes(), 2)

		_, _, ok := f.ledger.Node("gone")
		assert.False(t, ok)
		view, _, _ := f.ledger.Node("anew")
		assert.Equal(t, aNode("anew", 19, "8").UID, view.UID)
		removed := slices.IndexFunc(journal(f.ledger), func(e ledger.Event) bool {
			return e.Type == ledger.NodeRemoved &&
				e.NodeUID == "former"
		})
		assert.GreaterOrEqual(t, removed, 0, "who follows the ledger sees that the node was another")

		// The pod that went in the gap is older than the list: a late event of it tells nothing.
		f.podServer.send(watch.Modified, aPod("deleted", 18, on("n1")))
		synctest.Wait()
		assert.Nil(t, f.claim("deleted"))
	})
}

func journal(l ledger.Observer) []ledger.Event {
	events, _ := l.EventsSince(nil, 0, 1<<20)
	return events
}

func TestNodeEvents(t *testing.T) {
	f := newFixture(objects(aPod("p", 2, on("n1"))), objects(aNode("n1", 2, "4")))
	run(t, f, func(t *testing.T) {
		f.nodeServer.send(watch.Modified, aNode("n1", 1, "1"))
		f.nodeServer.send(watch.Modified, aNode("n1", 3, "2", cordoned))
		synctest.Wait()
		view, _, _ := f.ledger.Node("n1")
		assert.True(t, view.Unschedulable)
		assert.Equal(t, int64(2000), view.Amounts[0].Allocatable)

		f.nodeServer.send(watch.Added, aNode("n1", 5, "8", nodeUID("next")))
		f.nodeServer.send(watch.Deleted, aNode("n1", 4, "2"))
		synctest.Wait()
		view, allocations, _ := f.ledger.Node("n1")
		assert.True(t, view.Exists, "a late deletion of the former node does not take the new one away")
		assert.Len(t, allocations, 1, "a node made anew keeps the use of its pods")

		f.nodeServer.send(watch.Deleted, aNode("n1", 6, "8", nodeUID("next")))
		synctest.Wait()
		view, _, _ = f.ledger.Node("n1")
		assert.False(t, view.Exists)
		assert.Equal(t, ledger.Bound, f.claim("p").State)
	})
}

func TestStopIsQuickWhileTheAPIServerIsDown(t *testing.T) {
	f := newFixture(nil, nil)
	f.podServer.down = fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
	f.nodeServer.down = errors.New("no route to host")
	synctest.Test(t, func(t *testing.T) {
		f.enterBubble()
		stop := background.Run(t, f.Run)
		pass(time.Minute)
		assert.False(t, f.Synced())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, f.WaitForSync(ctx), context.DeadlineExceeded)
		before := time.Now()
		stop()
		assert.Zero(t, time.Since(before))
	})
}

func TestItComesBackToARestartedAPIServerWithinSeconds(t *testing.T) {
	f := newFixture(nil, nil)
	f.podServer.down = fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
	synctest.Test(t, func(t *testing.T) {
		f.enterBubble()
		defer background.Run(t, f.Run)()
		pass(time.Minute)
		f.podServer.mu.Lock()
		f.podServer.down = nil
		f.podServer.mu.Unlock()
		before := time.Now()
		require.NoError(t, f.WaitForSync(t.Context()))
		assert.Less(t, time.Since(before), 10*time.Second)
	})
}

// TestClientset goes through a real clientset's interface: pages are asked for consistently and put together.
func TestClientset(t *testing.T) {
	client := fake.NewClientset(aNode("n1", 1, "4"))
	var asked []metav1.ListOptions
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, o)
		page, _ := strconv.Atoi(o.Continue)
		list := &v1.PodList{Items: []v1.Pod{*aPod(fmt.Sprintf("p%d", page), 5+page, on("n1"))}}
		list.ResourceVersion = "9"
		if page < 2 {
			list.Continue = strconv.Itoa(page + 1)
		}
		return true, list, nil
	})
	c := New(client, ledger.New(ledger.Options{}).Observer(), (&told{}).options())
	stop := background.Run(t, c.Run)
	require.NoError(t, c.WaitForSync(t.Context()))
	stop()

	require.Len(t, asked, 3)
	assert.Empty(t, asked[0].ResourceVersion, "0 would be whatever a watch cache holds")
	for _, o := range asked {
		assert.EqualValues(t, pageSize, o.Limit)
	}
	for _, name := range []string{"p0", "p1", "p2"} {
		assert.Equal(t, ledger.Bound, c.claim(name).State)
	}
}
