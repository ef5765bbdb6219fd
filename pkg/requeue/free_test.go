package requeue

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// newLargeWorld has nodes of four CPUs and, before and after them, more full ones than a sample has.
func newLargeWorld(t *testing.T, nodes ...string) *world {
	w := newWorld(t)
	full := func(prefix string) {
		for i := range MinSample {
			w.ledger.ObserveNode(ledger.NodeObservation{Name: fmt.Sprintf("%s-%d", prefix, i)})
		}
	}
	full("first")
	placementtest.Nodes(w.ledger, 4000, nodes...)
	for _, name := range nodes {
		w.Nodes.Put(&cluster.Node{Name: name})
	}
	full("last")
	return w
}

// asking is a pod whose spec was changed.
func asking(t *testing.T, w *world, name string, change func(*v1.PodSpec)) *cluster.Pod {
	t.Helper()
	asked := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	change(&asked.Spec)
	made, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(asked)
	assert.NoError(t, err)
	p := pod(name)
	p.Constraints = made.Constraints
	return p
}

func TestPodsRefusedBySampleAreSentToFreeNodes(t *testing.T) {
	type testCase struct {
		nodes     []string
		change    func(*v1.PodSpec)
		nominated string
		offered   int
		want      []string
		woken     []string
	}
	spread := func(s *v1.PodSpec) {
		s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.DoNotSchedule}}
	}
	tests := map[string]testCase{
		"to a node that was not in it":                 {nodes: []string{"a"}, want: []string{"p -> a"}},
		"to none where there is none":                  {},
		"not where there are no more":                  {nodes: []string{"a"}, offered: MinSample - 1},
		"not where all were offered":                   {nodes: []string{"a"}, offered: 2*MinSample + 1},
		"not where pods were evicted for it elsewhere": {nodes: []string{"a"}, nominated: "b"},
		"to a node that it selects": {
			nodes: []string{"a", "labeled"}, want: []string{"p -> labeled"},
			change: func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"disk": "fast"} },
		},
		"to a node that its affinity allows": {
			nodes: []string{"a", "labeled"}, want: []string{"p -> labeled"},
			change: func(s *v1.PodSpec) {
				terms := []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: "disk", Operator: v1.NodeSelectorOpExists},
				}}}
				s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
				}}
			},
		},
		"not to a tainted one": {nodes: []string{"tainted", "a"}, want: []string{"p -> a"}},
		"but where it tolerates that": {
			nodes: []string{"tainted", "a"}, want: []string{"p -> tainted"},
			change: func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} },
		},
		"woken, if other pods matter": {nodes: []string{"a"}, woken: []string{"p"}, change: spread},
		"woken, if volumes matter": {nodes: []string{"a"}, woken: []string{"p"}, change: func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{
				{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
			}
		}},
		"not woken where no node is free": {change: spread},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newLargeWorld(t, tt.nodes...)
		w.Nodes.Put(&cluster.Node{Name: "labeled", Labels: map[string]string{"disk": "fast"}})
		w.Nodes.Put(&cluster.Node{Name: "tainted", Taints: []v1.Taint{{Key: "own", Effect: v1.TaintEffectNoSchedule}}})
		p := pod("p")
		if tt.change != nil {
			p = asking(t, w, "p", tt.change)
		}
		offered := tt.offered
		if offered == 0 {
			offered = MinSample
		}
		w.SearchLater(p, tt.nominated, offered)
		w.expect(nil)
		advance(settle)
		w.expect(tt.want)
		assert.Equal(t, tt.woken, w.api.patched())
	})
}

// The watch takes a node out of what is known of nodes before the ledger receives that.
func TestNodeThatWasJustDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a")
		w.Nodes.Remove("a")
		w.SearchLater(pod("p"), "", MinSample)
		advance(settle)
		w.expect(nil)
	})
}

// Three pods of half a node come to two gaps: what one was sent to counts as its own until it is bound, or
// was not asked for for long.
func TestSentPodsDoNotMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a", "b")
		w.bind(pod("filler"), "b") // capacity for one more
		pods := []*cluster.Pod{pod("1"), pod("2"), pod("3"), pod("4")}
		for _, p := range pods {
			w.SearchLater(p, "", MinSample)
			advance(settle)
		}
		w.expect([]string{"1 -> a", "2 -> b", "3 -> a"})
		w.bind(pods[0], "a")
		w.bind(pods[1], "b")
		advance(crowdedPause)
		w.expect([]string{"1 -> a", "2 -> b", "3 -> a"})
		w.Settled(pods[2].Ref.UID) // it was deleted
		advance(crowdedPause)
		w.expect([]string{"1 -> a", "2 -> b", "3 -> a", "4 -> a"})
	})
}

// A node in vain is followed by another one, after a pause that grows. When none is left it begins again.
func TestNodesThatTheSchedulerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a", "b")
		p := pod("p")
		w.SearchLater(p, "", MinSample)
		advance(settle)
		w.expect([]string{"p -> a"})
		assert.True(t, w.Nominated(p.Ref.UID, "a"))
		w.SearchLater(p, "a", MinSample)
		advance(settle)
		w.expect([]string{"p -> a"})
		advance(settle)
		w.expect([]string{"p -> a", "p -> b"})
		w.SearchLater(p, "b", MinSample)
		advance(4 * settle)
		w.expect([]string{"p -> a", "p -> b", "p -> a"})
		for range 50 {
			w.SearchLater(p, p.Ref.Name, MinSample) // not ours
		}
		w.SearchLater(p, "", MinSample) // it may have the nomination still
		advance(shortPause)
		w.expect([]string{"p -> a", "p -> b", "p -> a", "p -> a"})
		assert.Equal(t, []string{"p"}, w.api.patched(), "what is there already wakes nobody")
	})
}

func TestTriesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a")
		p, began := pod("p"), time.Now()
		nominated := ""
		for range manyTries {
			w.SearchLater(p, nominated, MinSample)
			advance(shortPause)
			nominated = "a"
		}
		assert.Len(t, w.api.written(), manyTries)
		assert.Less(t, time.Since(began), 5*time.Minute, "sooner than the scheduler tries it by itself")
		w.SearchLater(p, "a", MinSample)
		advance(longPause - time.Second)
		assert.Len(t, w.api.written(), manyTries)
		advance(time.Second)
		assert.Len(t, w.api.written(), manyTries+1)
	})
}

// A nomination that stopped being true is changed, or cleared.
func TestFreeNodeIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a", "b")
		p := pod("p")
		w.SearchLater(p, "", MinSample)
		advance(settle)
		fill := func(node string) {
			w.bind(pod("1-"+node), node)
			w.bind(pod("2-"+node), node)
			advance(sweepDelay)
		}
		fill("a")
		w.expect([]string{"p -> a", "p -> b"})
		fill("b")
		w.expect([]string{"p -> a", "p -> b", "p -x b"})
		assert.Empty(t, w.byUID)
	})
}

// A pod that has capacity of its own is sent there.
func TestPodIsSentHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a", "b")
		p := pod("p")
		plan := ledger.NewPlan([]ledger.Placement{w.Question.For(p, "b")}, ledger.AllOrNothing, time.Time{})
		assert.Equal(t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
		w.SearchLater(p, "", MinSample)
		advance(settle)
		w.expect([]string{"p -> b"})
	})
}

func TestSendWakesByNomination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a")
		assert.False(t, w.nominateNow(pod("p"), MinSample-1), "all nodes were offered")
		assert.False(t, w.nominateNow(pod("p"), 2*MinSample+1), "all nodes were offered")
		assert.True(t, w.nominateNow(pod("p"), MinSample))
		assert.True(t, w.nominateNow(pod("q"), MinSample))
		assert.False(t, w.nominateNow(pod("r"), MinSample), "that is for the others")
		advance(0)
		assert.ElementsMatch(t, []string{"p -> a", "q -> a"}, w.api.written())
	})
}

// A pod that was to be woken is, where its node is taken before the nomination is written.
func TestSentPodIsWokenWhereItsNodeIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a")
		w.Stop()
		p := pod("p")
		assert.True(t, w.nominateNow(p, MinSample))
		w.bind(pod("1"), "a")
		w.bind(pod("2"), "a")
		w.sweep()
		assert.True(t, w.carryOut(t.Context(), p.Ref.UID, false))
		w.expect(nil)
		assert.True(t, w.attemptOf(p.Ref.UID).news.sure)
	})
}

// A scheduler takes a nomination back itself when an attempt fails, so that nobody is woken by the write that clears
// it. What becomes free during that write must not be missed.
func TestFreedWhileANominationIsCleared(t *testing.T) {
	tests := map[string]func(w *world, p *cluster.Pod){
		"woken for it":        func(w *world, p *cluster.Pod) { assert.True(t, w.nominateNow(p, MinSample)) },
		"refused once more":   func(w *world, p *cluster.Pod) { w.SearchLater(p, "", MinSample) },
		"woken for a slot":    func(w *world, p *cluster.Pod) { w.slot("r", "b", ledger.Once); assert.True(t, w.planNow(p)) },
		"offered other nodes": func(w *world, p *cluster.Pod) { w.slot("r", "b", ledger.Once); w.direct(p, sample()...) },
	}
	bubble.Each(t, tests, func(t *testing.T, freed func(w *world, p *cluster.Pod)) {
		w := newLargeWorld(t, "a", "b")
		w.bind(pod("1-b"), "b")
		w.bind(pod("2-b"), "b")
		p := pod("p")
		w.SearchLater(p, "", MinSample)
		advance(settle)
		w.expect([]string{"p -> a"})
		w.api.nomination = func(write string) error {
			if write != "p -x a" {
				return nil
			}
			w.ledger.RemovePod(pod("1-b").Ref, 0)
			freed(w, p)
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)
		}
		w.bind(pod("1-a"), "a")
		w.bind(pod("2-a"), "a")
		advance(time.Second)
		writes := w.api.written()
		assert.Equal(t, []string{"p -> a", "p -x a"}, writes[:2])
		assert.Len(t, writes[2:], 1, "it is nominated anew")
	})
}

// Nodes where pods were sent, that nothing comes of, hide none that is free.
func TestCrowdedNodesHideNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]string, maxCrowded+1)
		for i := range nodes {
			nodes[i] = fmt.Sprintf("free-%03d", i)
		}
		w := newLargeWorld(t, nodes...)
		for i := range nodes {
			p := pod(fmt.Sprint("p", i))
			p.Request = placementtest.Request(4000)
			w.SearchLater(p, "", MinSample)
		}
		advance(settle)
		assert.Len(t, w.api.written(), len(nodes))
	})
}

// Pods that are sent at once do not meet on a node that has room for one of them.
func TestSentAtOnceDoNotMeet(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			nodes := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			w := newLargeWorld(t, nodes...)
			w.Stop()
			var sent sync.WaitGroup
			for _, name := range nodes {
				p := pod("for-" + name)
				p.Request = placementtest.Request(4000)
				sent.Go(func() { assert.True(t, w.nominateNow(p, MinSample)) })
			}
			sent.Wait()
			assert.Len(t, w.byNode, len(nodes))
		})
	}
}

// A search has the ledger, and waits for the lock of the plans meanwhile. Whoever waits for the ledger with that lock,
// behind a change of the ledger that waits for the search, waits for ever, and so do all others.
func TestNobodyWaitsForTheLedgerWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.Stop()
		w.Remind(pod("p"), "a")
		var writer sync.WaitGroup
		w.ledger.Try(func(*ledger.Trial) {
			writer.Go(func() { assert.True(t, w.carryOut(t.Context(), "uid-p", false)) })
			for stacks := make([]byte, 1<<20); !bytes.Contains(stacks[:runtime.Stack(stacks, true)],
				[]byte("ledger.Reader.Standing")); {
				runtime.Gosched()
			}
			free := w.mu.TryLock()
			assert.True(t, free)
			if free {
				w.mu.Unlock()
			}
		})
		writer.Wait()
		w.expect([]string{"p -> a"})
	})
}

// A pod that is reminded of what is kept for it is nominated anew, and woken: the scheduler may have cleared that.
func TestRemind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p := pod("p")
		w.Remind(p, "a")
		advance(settle)
		w.expect([]string{"p -> a"})
		assert.Empty(t, w.api.patched())
		w.Remind(p, "a")
		advance(settle)
		w.expect([]string{"p -> a", "p -> a"})
		assert.Equal(t, []string{"p"}, w.api.patched())
	})
}
