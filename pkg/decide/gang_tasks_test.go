package decide

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/background"
)

// volcanoOnly is an API server that has PodGroups of Volcano.
type volcanoOnly struct {
	discovery.DiscoveryInterfaceWithContext
}

func (volcanoOnly) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "podgroups"}}}, nil
}

// tasksTest is redirectTest with a PodGroup of Volcano, train, which needs members of some tasks.
func tasksTest(t *testing.T, nodes, cpus, minimum int, tasks map[string]any, test func(w *gangWorld)) {
	t.Helper()
	// Those of client-go sleep by the time at which the process started, which is another clock than the bubble's.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	redirectTest(t, nodes, cpus, func(w *gangWorld) {
		kind := kinds.Default()[2]
		table, err := kinds.New([]kinds.Kind{kind})
		require.NoError(w.t, err)
		object := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"minMember": int64(minimum), "minTaskMember": tasks},
		}}
		gv := schema.GroupVersion{Group: kind.Object.Group, Version: kind.Object.Versions[0]}
		object.SetGroupVersionKind(gv.WithKind("PodGroup"))
		object.SetNamespace("ns")
		object.SetName("train")
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{gv.WithResource("podgroups"): "PodGroupList"}, object)
		w.o.Gangs = gangs.New(gangs.Options{
			Pods: w.o.Pods, Kinds: table, Log: w.o.Log, OnChanged: func(kinds.Key) {}, Discovery: volcanoOnly{}, Client: client,
		})
		w.setMinimum = func(minimum int) {
			require.NoError(w.t, unstructured.SetNestedField(object.Object, int64(minimum), "spec", "minMember"))
			_, err := client.Resource(gv.WithResource("podgroups")).Namespace("ns").Update(w.t.Context(), object,
				metav1.UpdateOptions{})
			require.NoError(w.t, err)
			synctest.Wait()
		}
		background.Run(w.t, w.o.Gangs.Run)
		require.NoError(w.t, w.o.Gangs.WaitForSync(w.t.Context()))
		w.reader.Gangs = table
		test(w)
	})
}

// tasks makes the pods of a task be there: actor-0, actor-1 ...
func (w *gangWorld) tasks(task string, count int, change func(*v1.Pod)) (pods []*cluster.Pod) {
	for k := range count {
		pods = append(pods, w.pod("", fmt.Sprintf("%s-%d", task, k), 0, func(p *v1.Pod) {
			p.Annotations = map[string]string{"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": task}
			if change != nil {
				change(p)
			}
		}))
	}
	return pods
}

// A gang needs so many members of each task. Capacity is kept for these, and not for others that come first by name.
func TestTasksOfAGang(t *testing.T) {
	both := map[string]any{"actor": int64(2), "learner": int64(1)}
	tasksTest(t, 1, 4, 3, both, func(w *gangWorld) {
		actors := w.tasks("actor", 3, nil)
		w.refusedAs(w.bind(actors[0], "n0"), ledger.GangIncomplete)
		assert.Equal(t, "volcano gang ns/train needs at least 1 pods of task learner, and there are 0 that may be bound",
			w.viewOf(actors[0]).Why)
		learner := w.tasks("learner", 1, ofCPUs(2))[0]
		require.NoError(t, w.bind(actors[0], "n0"))
		assert.True(t, w.isKeptOn(actors[1].Ref, "n0"))
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		require.NoError(t, w.bind(actors[2], "n0"), "in the place of another actor")
		assert.False(t, w.isKeptOn(actors[1].Ref, "n0"))
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		w.refusedAs(w.bind(actors[1], "n0"), ledger.InsufficientResource)
		w.pass(finishAfter + time.Second)
		assert.Equal(t, GangWhole, w.viewOf(actors[0]).State, "%+v", w.viewOf(actors[0]))
		assert.Zero(t, w.kept())
	})
	tasksTest(t, 1, 8, 3, both, func(w *gangWorld) {
		w.rule(kinds.RedirectNever)
		actors, learner := w.tasks("actor", 3, nil), w.tasks("learner", 1, ofCPUs(2))[0]
		for k, pod := range actors {
			require.NoError(t, w.bind(pod, "n0"))
			assert.True(t, w.isKeptOn(learner.Ref, "n0"), k)
			w.watch()
			assert.Equal(t, GangStarting, w.viewOf(pod).State, "however many actors there are")
		}
		assert.Equal(t, 1, w.kept())
		w.begin(learner, "n0") // which may fail, so that it is not forgotten
		w.watch()
		require.True(t, w.bindFailed(learner.Ref, "n0"))
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		for range 2 * w.longest() / time.Minute {
			w.setMinimum(3) // what there is no news of for long does not count
			w.pass(30 * time.Second)
		}
		assert.Equal(t, GangShort, w.viewOf(learner).State)
		assert.Contains(t, w.viewOf(learner).Why, "lacks 1 of the 3 pods it needs")
		require.NoError(t, w.bind(learner, "n0"))
		w.watch()
		assert.Equal(t, GangWhole, w.viewOf(learner).State)
		assert.Empty(t, w.of)
	})
	tasksTest(t, 1, 8, 4, map[string]any{"learner": int64(1)}, func(w *gangWorld) {
		actors, learner := w.tasks("actor", 6, nil), w.tasks("learner", 1, nil)[0]
		require.NoError(t, w.bind(actors[5], "n0"))
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		assert.Equal(t, 3, w.kept(), "two of the others are needed as well")
	})
	tasksTest(t, 1, 8, 2, both, func(w *gangWorld) {
		actors := w.tasks("actor", 2, nil)
		require.NoError(t, w.bind(actors[0], "n0"))
		assert.Equal(t, 1, w.kept(), "tasks that come to more than the minimum do not count")
	})
}

// Members of tasks count, too, that are done, or were bound before this server decided.
func TestTasksOfAGangTakenOver(t *testing.T) {
	tasksTest(t, 1, 8, 3, map[string]any{"actor": int64(2), "learner": int64(1)}, func(w *gangWorld) {
		actors, learner := w.tasks("actor", 4, nil), w.tasks("learner", 1, nil)[0]
		for _, pod := range actors[:3] {
			w.ledger.ObservePod(ledger.PodObservation{Pod: pod.Ref, Node: "n0", Request: pod.Request, Scheduler: "s"})
			w.seen(pod, "n0")
		}
		w.finish(actors[:1])
		assert.Equal(t, 1, w.takeOver())
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		assert.Equal(t, 1, w.kept())
	})
	tasksTest(t, 1, 8, 3, map[string]any{"actor": int64(2), "learner": int64(1)}, func(w *gangWorld) {
		for _, pod := range w.tasks("actor", 3, nil)[:2] {
			w.ledger.ObservePod(ledger.PodObservation{Pod: pod.Ref, Node: "n0", Request: pod.Request, Scheduler: "s"})
			w.seen(pod, "n0")
		}
		assert.Zero(t, w.takeOver(), "no pod is there of the task that lacks one")
		assert.Zero(t, w.kept())
	})
}

// A gang that was whole and needs more members by now gets all of these or none. Members that are made anew meanwhile
// are bound one by one, and so are all once it was whole again.
func TestMinimumThatGrows(t *testing.T) {
	whole := func(t *testing.T, cpus int, test func(w *gangWorld, pods []*cluster.Pod)) {
		t.Helper()
		tasksTest(t, 1, cpus, 2, nil, func(w *gangWorld) {
			pods := w.tasks("", 2, ofCPUs(2))
			w.bindAll(pods)
			w.watch()
			require.Empty(t, w.of)
			w.setMinimum(4)
			assert.Equal(t, "Incomplete: 0 pending, 0 kept, 2 bound, 0 finished", counts(*w.viewOf(pods[0])))
			more := w.tasks("more", 1, ofCPUs(2))[0]
			assert.Equal(t, ledger.GangIncomplete, w.advise(more))
			w.refusedAs(w.bind(more, "n0"), ledger.GangIncomplete)
			assert.Contains(t, w.viewOf(more).Why, "needs at least 4 pods, and there are 3 that are bound, or may be")
			test(w, append(pods, w.tasks("more", 2, ofCPUs(2))...))
		})
	}
	whole(t, 7, func(w *gangWorld, pods []*cluster.Pod) {
		w.refusedAs(w.bind(pods[2], "n0"), ledger.GangUnplaced)
		assert.Equal(t, "Waiting: 2 pending, 0 kept, 2 bound, 0 finished", counts(*w.viewOf(pods[0])))
		assert.Contains(t, w.viewOf(pods[0]).Why, "; it had the 2 pods that it needed before its minimum became 4")
		w.pass(30 * time.Second)
		assert.Empty(t, w.short(), "it is as whole as it was")
		assert.Zero(t, w.gangKeeper.arbiter.HalfGangTime())
		w.resize("n0", 8)
		w.pass(2 * time.Second)
		require.NoError(t, w.bind(pods[2], "n0"))
		assert.True(t, w.isKeptOn(pods[3].Ref, "n0"))
	})
	whole(t, 8, func(w *gangWorld, pods []*cluster.Pod) {
		w.rule(kinds.RedirectNever)
		w.begin(pods[2], "n0")
		w.pass(3 * time.Second)
		assert.True(t, w.isKeptOn(pods[3].Ref, "n0"), "while the bind is under way")
		require.True(t, w.bindFailed(pods[2].Ref, "n0"))
		w.pass(3 * time.Second)
		assert.Zero(t, w.kept())
		require.NoError(t, w.bind(pods[2], "n0"))
		w.pass(3 * time.Second)
		assert.Equal(t, "Starting: 1 pending, 1 kept, 3 bound, 0 finished", counts(*w.viewOf(pods[0])))
		require.NoError(t, w.bind(pods[3], "n0"))
		w.watch()
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
		assert.Empty(t, w.o.Gangs.Grown())
	})
	whole(t, 8, func(w *gangWorld, pods []*cluster.Pod) { // one that is not needed comes, and fails
		w.rule(kinds.RedirectNever)
		require.NoError(t, w.bind(pods[2], "n0"))
		extra := w.tasks("extra", 1, nil)[0]
		w.resize("n0", 9)
		w.begin(extra, "n0")
		w.bindFailed(extra.Ref, "n0")
		w.pass(3 * time.Second)
		assert.Equal(t, "Starting: 2 pending, 1 kept, 3 bound, 0 finished", counts(*w.viewOf(pods[0])))
	})
	whole(t, 8, func(w *gangWorld, pods []*cluster.Pod) { // made anew with the new minimum, it starts as all of it
		for _, pod := range pods[:2] {
			gone := *pod
			gone.Node = "n0"
			w.ledger.RemovePod(pod.Ref, 2)
			w.o.Pods.Remove(&gone)
		}
		w.watch()
		assert.Empty(t, w.o.Gangs.Grown())
		w.refusedAs(w.bind(pods[2], "n0"), ledger.GangIncomplete)
	})
	whole(t, 8, func(w *gangWorld, pods []*cluster.Pod) { // bound past the server
		for _, pod := range pods[2:] {
			w.ledger.ObservePod(ledger.PodObservation{Pod: pod.Ref, Node: "n0", Request: pod.Request, Scheduler: "s"})
			w.seen(pod, "n0")
		}
		w.watch()
		assert.Empty(t, w.o.Gangs.Grown())
	})
	whole(t, 8, func(w *gangWorld, pods []*cluster.Pod) { // another server has decided meanwhile
		assert.Equal(t, 1, w.takeOver())
		assert.Empty(t, w.o.Gangs.Grown())
		assert.Equal(t, 2, w.kept())
	})
}

// Members of no task count where the gang needs more than its tasks, slots that are needed no more end, and a gang that
// was never whole needs its whole minimum.
func TestTasksThatAreNotNeeded(t *testing.T) {
	tasksTest(t, 1, 8, 3, map[string]any{"learner": int64(1)}, func(w *gangWorld) {
		pods := append(w.tasks("learner", 1, nil), w.tasks("", 2, nil)...)
		w.bindAll(pods)
		w.watch()
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
	})
	tasksTest(t, 1, 8, 3, map[string]any{"actor": int64(2), "learner": int64(1)}, func(w *gangWorld) {
		actors, learner := w.tasks("actor", 4, nil), w.tasks("learner", 1, nil)[0]
		for _, k := range []int{0, 2, 3} {
			require.NoError(t, w.bind(actors[k], "n0"))
		}
		w.watch()
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
		assert.Equal(t, 1, w.kept())
	})
	tasksTest(t, 1, 2, 2, nil, func(w *gangWorld) {
		w.setMinimum(4)
		w.refusedAs(w.bind(w.tasks("", 4, nil)[0], "n0"), ledger.GangUnplaced)
	})
}

// A server that decides again while PodGroups cannot be read goes by the tasks that it knew.
func TestTasksThatAreNotReadAnyMore(t *testing.T) {
	tasksTest(t, 1, 3, 3, map[string]any{"actor": int64(2), "learner": int64(1)}, func(w *gangWorld) {
		w.rule(kinds.RedirectNever)
		actors, learner := w.tasks("actor", 4, nil), w.tasks("learner", 1, nil)[0]
		require.NoError(t, w.bind(actors[0], "n0"))
		require.True(t, w.isKeptOn(learner.Ref, "n0"))
		w.pass(w.longest() + time.Minute) // there is no news of PodGroups, and the slots end
		gang, _ := w.o.Gangs.Of(learner)
		require.True(t, gang.Unread)
		assert.Equal(t, 1, w.takeOver())
		assert.True(t, w.isKeptOn(learner.Ref, "n0"))
	})
}

// While PodGroups cannot be read nothing is known of a gang that grows, and nothing changes.
func TestMinimumThatGrowsIsNotRead(t *testing.T) {
	tasksTest(t, 1, 8, 2, nil, func(w *gangWorld) {
		pods := w.tasks("", 2, nil)
		w.bindAll(pods)
		w.watch()
		w.setMinimum(4)
		more := w.tasks("more", 1, nil)[0]
		client, ok := w.o.Gangs.Client.(*dynamicfake.FakeDynamicClient)
		require.True(t, ok)
		var down atomic.Bool
		down.Store(true)
		client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
			return down.Load(), nil, errors.New("down")
		})
		client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("down")
		})
		gang := gangs.Gang{}
		for range 15 * time.Minute / time.Second { // until the watch has ended, with no news of them for long
			if gang, _ = w.o.Gangs.Of(more); !gang.Unread {
				w.pass(time.Second)
			}
		}
		require.True(t, gang.Unread)
		w.watch()
		down.Store(false)
		w.pass(time.Minute)
		w.setMinimum(4)
		gang, _ = w.o.Gangs.Of(more)
		assert.Equal(t, 2, gang.Former)
		w.refusedAs(w.bind(more, "n0"), ledger.GangIncomplete)
	})
}

// A gang that lacks a task was not whole before its minimum grew.
func TestMinimumThatGrowsWhileATaskIsLacking(t *testing.T) {
	tasksTest(t, 1, 4, 3, map[string]any{"actor": int64(2), "learner": int64(1)}, func(w *gangWorld) {
		w.rule(kinds.RedirectNever)
		actors, learner := w.tasks("actor", 3, nil), w.tasks("learner", 1, nil)[0]
		w.bindAll(actors)
		w.setMinimum(5)
		w.watch()
		assert.Empty(t, w.o.Gangs.Grown())
		require.NoError(t, w.bind(learner, "n0"), "others run already")
	})
}
