package cluster

import (
	"cmp"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// world is a cache that was fed once, an API server that answers live reads, and a comparer between them.
type world struct {
	*Cache
	*Comparer
	live    *fake.Clientset
	at      time.Time // what the comparer's clock shows
	log     *logrustest.Hook
	told    *told
	decides *ledger.Ledger // the ledger, as the arbiter has it
	// drift is what the comparer reported last.
	drift map[Kind]int
	// settling is what happens between the first and the second look.
	settling []func()
}

// newWorld has pods "a" and "b" bound to n1, "w" waiting, and nodes n1 and n2, everywhere the same.
func newWorld(t *testing.T) *world {
	pods := objects(aPod("a", 10, on("n1")), aPod("b", 11, on("n1")), aPod("w", 12))
	nodes := objects(aNode("n1", 5, "4"), aNode("n2", 6, "4"))
	w := &world{
		live: fake.NewClientset(append(pods, nodes...)...), at: time.Unix(1000, 0), told: &told{}, drift: map[Kind]int{},
	}
	log, hook := logrustest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	w.log = hook
	w.decides = ledger.New(ledger.Options{})
	w.Cache = New(w.live, w.decides.Observer(), w.told.options())
	w.Comparer = NewComparer(w.Cache, w.live, ComparerOptions{
		Logger: log, OnDrift: func(kind Kind, n int) { w.drift[kind] = n },
	})
	w.now = func() time.Time { return w.at }
	require.NoError(t, w.podSink().Replace(anys(pods), "20"))
	require.NoError(t, w.nodeSink().Replace(anys(nodes), "20"))
	w.told.take()
	return w
}

func anys(o []runtime.Object) []any {
	items := make([]any, len(o))
	for i := range o {
		items[i] = o[i]
	}
	return items
}

func (w *world) podEvent(pod *v1.Pod)   { _ = w.podSink().Update(pod) }
func (w *world) podDeleted(pod *v1.Pod) { _ = w.podSink().Delete(pod) }

// nextLook lets the time between two looks pass and looks.
func (w *world) nextLook(t *testing.T, live bool) {
	t.Helper()
	w.at = w.at.Add(30 * time.Second)
	require.NoError(t, w.look(t.Context(), live))
}

// found returns the differences of the last look, nil where there are none.
func (w *world) found() map[Kind]int {
	found := maps.Clone(w.drift)
	if maps.DeleteFunc(found, func(_ Kind, n int) bool { return n == 0 }); len(found) == 0 {
		return nil
	}
	return found
}

func (w *world) create(t *testing.T, pod *v1.Pod) {
	t.Helper()
	_, err := w.live.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (w *world) update(t *testing.T, pod *v1.Pod) {
	t.Helper()
	require.NoError(t, w.live.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace))
}

func (w *world) deleteLive(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, w.live.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (w *world) bindInFlight(t *testing.T, pod *v1.Pod, node string) {
	t.Helper()
	p := placement(w.Cache, pod, node)
	_, rejection := w.decides.StartBind(&p, time.Unix(1000, 0))
	require.Nil(t, rejection)
}

func (w *world) confirmed(t *testing.T, pod *v1.Pod, node string) {
	t.Helper()
	w.bindInFlight(t, pod, node)
	require.True(t, w.decides.Confirm(w.reader.Compact(pod).Ref, node))
}

// reserveByName reserves capacity for a pod that does not exist yet.
func (w *world) reserveByName(name, node string) {
	p := placement(w.Cache, aPod(name, 0, withUID("")), node)
	w.decides.Reserve(ledger.NewPlan([]ledger.Placement{p}, ledger.AllOrNothing, time.Time{}), time.Unix(1000, 0))
}

func aRef(name string) ledger.PodRef {
	return ledger.PodRef{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

// allocationIs returns the state and node of a pod's allocation.
func (w *world) allocationIs(name string) string {
	return cmp.Or(w.shareOf(name), "none")
}

func TestComparer(t *testing.T) {
	observe := func(n *v1.Node) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.decides.ObserveNode(*compactNode(w.reader.Table, n).observation()) }
	}
	tests := map[string]struct {
		// spoil makes the ledger, the cache and the API server differ.
		spoil func(t *testing.T, w *world)
		// live looks list from the API server.
		live bool
		// found are the differences of the second look.
		found map[Kind]int
		// allocations are the allocations in the end.
		allocations map[string]string
		told        []string
		// nodes are those in the end, where they are not n1 and n2.
		nodes []string
	}{
		"nothing": {
			spoil: func(*testing.T, *world) {},
			live:  true, allocations: map[string]string{"a": "Bound n1", "b": "Bound n1", "w": "none"},
		},
		"an allocation was lost": {
			spoil: func(_ *testing.T, w *world) { w.decides.RemovePod(aRef("a"), 0) },
			found: map[Kind]int{MissingAllocation: 1}, allocations: map[string]string{"a": "Bound n1"},
		},
		"the pod is on another node than its allocation": {
			spoil: func(_ *testing.T, w *world) {
				moved := w.reader.Compact(aPod("a", 0, on("n2"))).Observation()
				w.decides.ObservePod(moved)
			},
			found: map[Kind]int{WrongNode: 1}, allocations: map[string]string{"a": "Bound n1"},
		},
		"the allocation is of another amount": {
			spoil: func(_ *testing.T, w *world) {
				w.decides.ObservePod(w.reader.Compact(aPod("a", 0, on("n1"), asking("3"))).Observation())
			},
			found: map[Kind]int{WrongAmount: 1}, allocations: map[string]string{"a": "Bound n1"},
		},
		"the pod is bound, its allocation does not know": {
			spoil: func(t *testing.T, w *world) {
				w.bindInFlight(t, aPod("w", 12), "n2")
				w.Pods.Put(w.reader.Compact(aPod("w", 40, on("n2"))))
			},
			found: map[Kind]int{UnconfirmedAllocation: 1}, allocations: map[string]string{"w": "Bound n2"},
		},
		"a pod that finished still has an allocation": {
			spoil: func(_ *testing.T, w *world) {
				done := aPod("a", 30, on("n1"), inPhase(v1.PodFailed))
				w.podEvent(done)
				w.decides.ObservePod(w.reader.Compact(aPod("a", 31, on("n1"))).Observation())
			},
			found: map[Kind]int{StaleAllocation: 1}, allocations: map[string]string{"a": "none"},
			told: []string{"gone default/a"},
		},
		"the cache is behind: bound, and the ledger is right": {
			spoil: func(t *testing.T, w *world) {
				w.confirmed(t, aPod("w", 12), "n2")
				w.update(t, aPod("w", 40, on("n2")))
			},
			live: true, allocations: map[string]string{"w": "Bound n2"},
		},
		"the cache is behind: made anew under the name": {
			spoil: func(t *testing.T, w *world) {
				w.confirmed(t, aPod("w", 12), "n2")
				w.deleteLive(t, "w")
				w.create(t, aPod("w", 41, withUID("next")))
			},
			found: map[Kind]int{StaleAllocation: 1}, allocations: map[string]string{"w": "none"},
			told: []string{"gone default/w"},
		},
		"a bind is in flight": {
			spoil: func(t *testing.T, w *world) { w.bindInFlight(t, aPod("w", 12), "n2") },
			live:  true, allocations: map[string]string{"w": "Binding n2"},
		},
		"a bind is in flight whose pod was deleted": {
			spoil: func(t *testing.T, w *world) {
				w.bindInFlight(t, aPod("w", 12), "n2")
				w.deleteLive(t, "w")
			},
			found: map[Kind]int{StaleAllocation: 1}, allocations: map[string]string{"w": "none"},
			told: []string{"gone default/w"},
		},
		"a pod that is being created with a node": {
			spoil: func(t *testing.T, w *world) { w.bindInFlight(t, aPod("x", 12), "n2") },
			live:  true, allocations: map[string]string{"x": "Binding n2"},
		},
		"a bind whose end nobody told": {
			spoil: func(t *testing.T, w *world) {
				w.bindInFlight(t, aPod("w", 12), "n2")
				w.update(t, aPod("w", 40, on("n2")))
			},
			found: map[Kind]int{UnconfirmedAllocation: 1}, allocations: map[string]string{"w": "Bound n2"},
			told: []string{"bound default/w"},
		},
		"a reservation, whatever its pod": {
			spoil: func(t *testing.T, w *world) {
				w.reserveByName("to-come", "n1")
				reserve("w", "n2")(&fixture{Cache: w.Cache, decides: w.decides})
				w.deleteLive(t, "w")
			},
			live: true, allocations: map[string]string{"w": "Reserved n2"},
		},
		"bound without an allocation, and the cache does not know": {
			spoil: func(t *testing.T, w *world) { w.create(t, aPod("x", 50, on("n2"))) },
			live:  true, found: map[Kind]int{MissingAllocation: 1}, allocations: map[string]string{"x": "Bound n2"},
			told: []string{"bound default/x", "bypassed default/x"},
		},
		"deleted, and nobody was told": {
			spoil: func(t *testing.T, w *world) { w.deleteLive(t, "b") },
			live:  true, found: map[Kind]int{StaleAllocation: 1}, allocations: map[string]string{"b": "none"},
			told: []string{"gone default/b"},
		},
		"resized, and nobody was told": {
			spoil: func(t *testing.T, w *world) { w.update(t, aPod("b", 60, on("n1"), asking("2"))) },
			live:  true, found: map[Kind]int{WrongAmount: 1}, allocations: map[string]string{"b": "Bound n1"},
		},
		"it settles before the next look": {
			spoil: func(t *testing.T, w *world) {
				w.confirmed(t, aPod("w", 12), "n2")
				w.settling = append(w.settling, func() { w.podEvent(aPod("w", 40, on("n2"))) })
			},
			allocations: map[string]string{"w": "Bound n2"}, told: []string{"bound default/w"},
		},
		"a node was lost": {
			spoil: func(_ *testing.T, w *world) { w.decides.RemoveNode("n1") }, found: map[Kind]int{MissingNode: 1},
		},
		"a node was invented":      {spoil: observe(aNode("n9", 1, "1")), found: map[Kind]int{StaleNode: 1}},
		"a node of another amount": {spoil: observe(aNode("n1", 1, "5")), found: map[Kind]int{WrongNodeAmount: 1}},
		"a node that was cordoned": {spoil: observe(aNode("n1", 1, "4", cordoned)), found: map[Kind]int{WrongNodeState: 1}},
		"another machine of a node": {
			spoil: observe(aNode("n1", 1, "4", nodeUID("x"))), found: map[Kind]int{WrongNodeState: 1},
		},
		"nobody told that a node was deleted": {
			spoil: func(t *testing.T, w *world) {
				require.NoError(t, w.live.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
			},
			live: true, found: map[Kind]int{StaleNode: 1}, nodes: []string{"n1"},
		},
		"nobody told that a node was added": {
			spoil: func(t *testing.T, w *world) {
				_, err := w.live.CoreV1().Nodes().Create(t.Context(), aNode("n3", 50, "4"), metav1.CreateOptions{})
				require.NoError(t, err)
			},
			live: true, found: map[Kind]int{MissingNode: 1}, nodes: []string{"n1", "n2", "n3"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.spoil(t, w)
			w.nextLook(t, tt.live)
			assert.Empty(t, w.found(), "what a first look sees may be under way")
			for _, settle := range w.settling {
				settle()
			}
			w.nextLook(t, false)
			assert.Equal(t, tt.found, w.found())
			w.nextLook(t, tt.live)
			assert.Empty(t, w.found(), "what was found was repaired")
			for pod, claim := range tt.allocations {
				assert.Equal(t, claim, w.allocationIs(pod), pod)
			}
			assert.Equal(t, tt.told, w.told.take())
			var nodes []string
			views, _ := w.decides.Nodes()
			for _, v := range views {
				if v.Exists {
					nodes = append(nodes, v.Name)
				}
			}
			if tt.nodes == nil {
				tt.nodes = []string{"n1", "n2"}
			}
			assert.Equal(t, tt.nodes, nodes)
		})
	}
}

// What the API server alone can tell is not asked for until it has had time to settle.
func TestAnAllocationAheadOfTheCacheIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.confirmed(t, aPod("never-seen", 25), "n2")
	require.NoError(t, w.look(t.Context(), false))
	w.at = w.at.Add(grace - time.Second)
	require.NoError(t, w.look(t.Context(), false))
	assert.Empty(t, w.found())
	w.at = w.at.Add(time.Second)
	require.NoError(t, w.look(t.Context(), false))
	assert.Equal(t, map[Kind]int{StaleAllocation: 1}, w.found())
}

// An allocation that is Bound where the API server says the pod is not cannot be
// repaired without making the pod unschedulable: it is reported instead.
func TestADifferenceThatCannotBeRepairedIsReportedEveryTime(t *testing.T) {
	w := newWorld(t)
	w.confirmed(t, aPod("w", 12), "n2")
	w.nextLook(t, false)
	w.at = w.at.Add(time.Minute)
	for range 3 {
		w.nextLook(t, false)
		assert.Equal(t, map[Kind]int{StaleAllocation: 1}, w.found())
		last := w.log.LastEntry()
		assert.Equal(t, logrus.ErrorLevel, last.Level)
		assert.Equal(t, "default/w", last.Data["pod"])
		assert.Contains(t, last.Data["ledger"], "state Bound on node n2")
		assert.Contains(t, last.Data["cluster"], "not bound")
	}
	assert.Equal(t, "Bound n2", w.allocationIs("w"))

	w.live.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is down")
	})
	require.Error(t, w.look(t.Context(), false))
	assert.Equal(t, map[Kind]int{StaleAllocation: 1}, w.found(), "nothing is known to have changed")

	w.decides.RemovePod(ledger.PodRef{Namespace: "default", Name: "w", UID: "w-uid"}, 0)
	w.nextLook(t, false)
	assert.Empty(t, w.found(), "it is not there any more")
}
