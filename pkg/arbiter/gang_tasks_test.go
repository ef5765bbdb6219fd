package arbiter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
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
		w.touchGroup = func() { // what nothing is heard of for long does not count
			_, err := client.Resource(gv.WithResource("podgroups")).Namespace("ns").Update(w.t.Context(), object,
				metav1.UpdateOptions{})
			require.NoError(w.t, err)
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

func twoCPUs(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("2")}
}

// A gang needs so many members of each task. Capacity is kept for these, and not for others that come first by name.
func TestTasksOfAGang(t *testing.T) {
	both := map[string]any{"actor": int64(2), "learner": int64(1)}
	tasksTest(t, 1, 4, 3, both, func(w *gangWorld) {
		actors := w.tasks("actor", 3, nil)
		w.refusedAs(w.bind(actors[0], "n0"), ledger.GangIncomplete)
		assert.Equal(t, "volcano gang ns/train needs at least 1 pods of task learner, and there are 0 that may be bound",
			w.viewOf(actors[0]).Why)
		learner := w.tasks("learner", 1, twoCPUs)[0]
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
		actors, learner := w.tasks("actor", 3, nil), w.tasks("learner", 1, twoCPUs)[0]
		for k, pod := range actors {
			require.NoError(t, w.bind(pod, "n0"))
			assert.True(t, w.isKeptOn(learner.Ref, "n0"), k)
			w.watch()
			assert.Equal(t, GangStarting, w.viewOf(pod).State, "however many actors there are")
		}
		assert.Equal(t, 1, w.kept())
		for range 2 * w.longest() / time.Minute {
			w.touchGroup()
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
}
