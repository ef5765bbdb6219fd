package decide

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// The first of a gang is bound only with capacity for the rest, which nobody else is given. A bind that fails leaves
// its member what it had.
func TestGangIsBoundWhole(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		single := w.pod("", "single", 0, withoutGang)
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.Equal(t, 3, w.kept())
		w.refusedAs(w.bind(single, "n1"), ledger.InsufficientResource)
		w.begin(pods[1], "n1") // whatever node the scheduler meant each for
		require.NoError(t, w.bind(pods[2], "n1"))
		w.begin(pods[3], "n0")
		assert.Zero(t, w.kept())
		w.watch()
		require.True(t, w.bindFailed(pods[3].Ref, "n0"))
		assert.Equal(t, 1, w.kept())
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)
		require.NoError(t, w.bind(pods[3], "n0"))
		require.True(t, w.o.Ledger.Confirm(pods[1].Ref, "n1"))
		assert.Zero(t, w.kept())
		w.watch()
		assert.Empty(t, w.of, "nothing is remembered of a gang that is whole")
	})
}

// What a node leaves to DRA is kept for no member: whether there are devices for all of a gang nobody knows. So the
// gang waits for nodes that offer it by count.
func TestGangIsNotKeptWhatDRAGives(t *testing.T) {
	const gpu = "example.com/gpu"
	gangTest(t, 2, 3, func(w *gangWorld) {
		placementtest.DRA(w.ledger, 3000, gpu, "n0", "n1")
		pods := w.gang("a", 2, 2, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[gpu] = resource.MustParse("1") })
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		assert.Equal(t, ledger.GangUnplaced, w.advise(pods[0]))
		given := w.gang("given", 2, 2, func(p *v1.Pod) { // at an attempt before
			p.Spec.Containers[0].Resources.Requests[gpu] = resource.MustParse("1")
			p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
				RequestMappings: []v1.ContainerExtendedResourceRequest{{ResourceName: gpu}},
			}
		})
		w.refusedAs(w.bind(given[0], "n0"), ledger.GangUnplaced)
		assert.Zero(t, w.kept())
		column, _ := w.ledger.Table().Lookup(gpu)
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "n1", Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 3000}, {Column: resources.Pods, Value: 110}, {Column: column, Value: 2},
		}})
		require.NoError(t, w.bind(pods[0], "n1"))
		require.NoError(t, w.bind(pods[1], "n0"), "what is kept for it on the other node it does not need")
	})
}

// Pods that nobody can bind are missing, and each refusal says so.
func TestGangOfTooFewPods(t *testing.T) {
	gangTest(t, 1, 8, func(w *gangWorld) {
		pods := w.gang("a", 2, 3, nil)
		err := w.bind(pods[0], "n0")
		w.refusedAs(err, ledger.GangIncomplete)
		assert.ErrorContains(t, err, "needs at least 3 pods, and there are 2")
		assert.Equal(t, ledger.GangIncomplete, w.advise(pods[0]))
		third := w.pod("a", "a-2", 3, nil)
		w.watch()
		assert.Equal(t, []string{"a-0"}, w.woken())
		require.NoError(t, w.bind(third, "n0"))
		require.NoError(t, w.bind(pods[0], "n0"))
		require.NoError(t, w.bind(pods[1], "n0"))

		gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/later"}} }
		w.pod("g", "g-0", 2, gated)
		w.refusedAs(w.bind(w.pod("g", "g-1", 2, nil), "n0"), ledger.GangIncomplete)
		for name, minimum := range map[string]int{"many": 1_000_000, "negative": -1} {
			w.refusedAs(w.bind(w.pod(name, name, minimum, nil), "n0"), ledger.GangIncomplete)
		}
		require.NoError(t, w.bind(w.pod("one", "one", 1, nil), "n0"))
		require.NoError(t, w.bind(w.pod("none", "none", 0, withoutGang), "n0"))
		assert.Zero(t, w.kept())
	})
}

// Of more pods than it needs a gang counts on the smallest beside the one that is bound, and of equals on those of the
// highest priority.
func TestGangOfMorePodsThanItNeedsCountsOnTheSmallest(t *testing.T) {
	asks := func(name v1.ResourceName, amount string, priority int32) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[name], p.Spec.Priority = resource.MustParse(amount), &priority
		}
	}
	eachGang(t, 1, 2, map[string]func(*v1.Pod){
		"CPU": asks("cpu", "2", 10), "memory": asks("memory", "9Gi", 10), "as much": asks("cpu", "1", 0),
		"what no node has": asks("example.com/gpu", "1", 10),
	}, func(t *testing.T, w *gangWorld, large func(*v1.Pod)) {
		w.pod("a", "a-0", 2, large)
		small := w.pod("a", "a-2", 2, asks("cpu", "1", 5))
		require.NoError(t, w.bind(w.pod("a", "a-1", 2, nil), "n0"))
		_, kept := w.ledger.HomeOf(small.Ref)
		assert.True(t, kept)
	})
}

// What asks for less of extended resources is smaller, whatever CPU it asks for.
func TestCompareExtended(t *testing.T) {
	ask := func(amounts ...resources.Amount) *resources.Request { return &resources.Request{Amounts: amounts} }
	const gpu, nic = resources.Pods + 1, resources.Pods + 2
	growing := []*resources.Request{
		ask(resources.Amount{Column: resources.CPU, Value: 9}),
		ask(resources.Amount{Column: gpu, Value: 1}),
		ask(resources.Amount{Column: resources.CPU, Value: 1}, resources.Amount{Column: gpu, Value: 8}),
		ask(resources.Amount{Column: nic, Value: 1}),
		ask(resources.Amount{Column: gpu, Value: 1}, resources.Amount{Column: nic, Value: 1}),
		{Unlisted: []resources.NamedAmount{{Name: "example.com/new", Value: 1}}},
	}
	for i, a := range growing {
		for k, b := range growing {
			assert.Equal(t, cmp.Compare(i, k), compareExtended(a, b), "%d and %d", i, k)
		}
	}
}

// Members of different sizes change places as their scheduler likes.
func TestGangChangesPlaces(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		large, small, other := w.pod("a", "a-large", 3, ofCPUs(3)), w.pod("a", "a-small", 3, ofCPUs(1)),
			w.pod("a", "a-other", 3, ofCPUs(4))
		require.NoError(t, w.bind(small, "n1"))
		home, ok := w.ledger.HomeOf(large.Ref)
		require.True(t, ok)
		require.Equal(t, "n1", home, "the only place beside the other one")
		require.NoError(t, w.bind(large, "n1"))
		w.refusedAs(w.bind(other, "n1"), ledger.InsufficientResource)
		err := w.bind(other, "n1")
		assert.ErrorContains(t, err, `capacity is kept for it on node "n0"`)
		require.NoError(t, w.bind(other, "n0"))
	})
	gangTest(t, 2, 4, func(w *gangWorld) {
		pods := []*cluster.Pod{
			w.pod("a", "a-0", 4, ofCPUs(2)), w.pod("a", "a-1", 4, ofCPUs(2)),
			w.pod("a", "a-2", 4, ofCPUs(1)), w.pod("a", "a-3", 4, ofCPUs(3)),
		}
		require.NoError(t, w.bind(pods[2], "n1"))
		assert.Equal(t, 3, w.kept())
		require.NoError(t, w.bind(pods[3], "n1"))
		require.NoError(t, w.bind(pods[1], "n0"))
		require.NoError(t, w.bind(pods[0], "n0"))
	})
}

// The watch takes a node out of what is known of nodes before the ledger receives that.
func TestGangAndANodeThatWasJustDeleted(t *testing.T) {
	gangTest(t, 2, 1, func(w *gangWorld) {
		w.nodes.Remove("n1")
		w.refusedAs(w.bind(w.gang("a", 2, 2, nil)[0], "n0"), ledger.GangUnplaced)
	})
}

// Slots end at the deadline, which members that are bound put off. Then it is reported that the gang is short, and what
// is missing is kept again with the next member that is bound.
func TestGangFallsShort(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		pods := w.starting(5, 5, nil)
		<-time.After(50 * time.Second)
		require.NoError(t, w.bind(pods[1], "n0"))
		w.watch()
		w.lapse(50 * time.Second)
		w.watch()
		assert.Equal(t, 3, w.kept(), "put off by the second")
		assert.Empty(t, w.short())
		w.lapse(45 * time.Second)
		w.watch()
		w.watch()
		assert.Zero(t, w.kept())
		assert.Equal(t, []string{"globalreserve gang ns/a lacks 3"}, w.short(), "once")
		var told []string
		for _, event := range w.events {
			pod, note, _ := strings.Cut(event, ": ")
			told = append(told, pod)
			assert.Contains(t, note, "globalreserve gang ns/a has started and lacks 3 of the 5 pods it needs")
		}
		assert.ElementsMatch(t, []string{"a-2", "a-3", "a-4"}, told)
		w.tellShort(&gangs.Gang{Key: pods[0].Gang.Key("ns"), Object: &v1.ObjectReference{Name: "its object"}}, 0)
		assert.Contains(t, w.events[3], "its object: ")
		leaving := *pods[4]
		leaving.Deleting = true
		w.o.Pods.Put(&leaving)
		require.NoError(t, w.bind(pods[2], "n1"))
		assert.Equal(t, 1, w.kept(), "of two that it lacks one exists")
		w.o.Pods.Put(pods[4])
		require.NoError(t, w.bind(pods[3], "n1"))
		require.NoError(t, w.bind(pods[4], "n1"))
		w.watch()
		assert.Empty(t, w.of)
	})
}

// Members that capacity is kept for are sent there, again and again, while none is bound: schedulers forget where they
// were sent.
func TestGangIsReminded(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		pods := w.starting(3, 3, nil)
		<-time.After(finishAfter - time.Second)
		require.NoError(t, w.bind(pods[1], "n0"))
		sent := func() bool { return w.o.Waiting.Nominated(pods[2].Ref.UID, "n0") }
		for range 3 {
			<-time.After(finishAfter - time.Second)
			w.watch()
			require.False(t, sent())
			<-time.After(time.Second)
			w.watch()
			require.True(t, sent())
			w.o.Waiting.Settled(pods[2].Ref.UID)
		}
		<-time.After(w.ttl())
		w.watch()
		assert.False(t, sent(), "nothing is kept any more")
	})
}

// A slot that made way for another member lasts as long as the others: for the whole time from the last bind on.
func TestGangSlotThatMovedLasts(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.starting(4, 4, nil)
		k := slices.IndexFunc(pods[1:], func(pod *cluster.Pod) bool { return w.isKeptOn(pod.Ref, "n0") })
		moved := pods[1+k]
		others := slices.DeleteFunc(pods[1:], func(pod *cluster.Pod) bool { return pod == moved })
		<-time.After(time.Second)
		require.NoError(t, w.bind(others[0], "n0"))
		require.True(t, w.isKeptOn(moved.Ref, "n1"), "it made way")
		<-time.After(24 * time.Second)
		require.NoError(t, w.bind(others[1], "n1"))
		w.lapse(59 * time.Second)
		assert.True(t, w.isKeptOn(moved.Ref, "n1"), "the last bind was 59 seconds ago")
	})
}

// A gang that needs more by now is kept more for, one that needs fewer gives up what it does not need any more, and one
// of which nobody knows how many it needs any more goes on as before.
func TestGangMinimumChanges(t *testing.T) {
	gangTest(t, 3, 4, func(w *gangWorld) {
		pods := w.starting(8, 4, nil)
		for k := range 4 {
			pods[k] = w.pod("a", pods[k].Ref.Name, 8, nil)
		}
		w.watch()
		assert.Equal(t, 3, w.kept(), "members do not agree")
		require.NoError(t, w.bind(pods[1], "n0"))
		assert.Equal(t, 2, w.kept())
		for k := 4; k < 8; k++ {
			pods[k] = w.pod("a", pods[k].Ref.Name, 8, nil)
		}
		require.NoError(t, w.bind(pods[2], "n0"))
		assert.Equal(t, 5, w.kept())
		for _, fewer := range []struct{ minimum, kept int }{{5, 2}, {3, 0}} {
			for k := range pods {
				pods[k] = w.pod("a", pods[k].Ref.Name, fewer.minimum, nil)
			}
			w.watch()
			assert.Equal(t, fewer.kept, w.kept())
		}
	})
}
