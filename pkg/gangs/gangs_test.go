package gangs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// What a gang needs, by what its pods and objects say.
func TestOf(t *testing.T) {
	koordinatorLabel := func(p *v1.Pod) { p.Labels["pod-group.scheduling.sigs.k8s.io"] = "g" }
	koordinatorAnnotations := func(p *v1.Pod) {
		p.Annotations["gang.scheduling.koordinator.sh/name"] = "g"
		p.Annotations["gang.scheduling.koordinator.sh/min-available"] = "3"
	}
	gangPath := []string{"schedulingPolicy", "gang", "minCount"}
	tests := map[string]struct {
		installed []schema.GroupVersionResource
		objects   []*unstructured.Unstructured
		pod       func(*v1.Pod)
		others    []func(*v1.Pod)
		minimum   int    // 0: no gang, or a problem
		problem   string // part of it
	}{
		"no gang": {pod: func(*v1.Pod) {}},

		"by an object": {installed: vs(volcano), objects: us(group(volcano, "g", int64(4))), pod: ofVolcano("g"), minimum: 4},
		"a million": {
			installed: vs(volcano), objects: us(group(volcano, "g", int64(1_000_000))),
			pod: ofVolcano("g"), minimum: 1_000_000,
		},
		"not installed": {installed: vs(kubernetes), pod: ofVolcano("g")},
		"minimum 0":     {installed: vs(volcano), objects: us(group(volcano, "g", int64(0))), pod: ofVolcano("g")},
		"minimum 1":     {installed: vs(volcano), objects: us(group(volcano, "g", int64(1))), pod: ofVolcano("g")},
		"no minimum":    {installed: vs(volcano), objects: us(group(volcano, "g", nil)), pod: ofVolcano("g")},
		"negative": {
			installed: vs(volcano), objects: us(group(volcano, "g", int64(-3))), pod: ofVolcano("g"),
			problem: "podgroups.scheduling.volcano.sh ns/g: .spec.minMember is -3; say",
		},
		"no number": {
			installed: vs(volcano), objects: us(group(volcano, "g", "many")), pod: ofVolcano("g"),
			problem: `.spec.minMember is "many", which is no whole number; correct it`,
		},
		"no object": {
			installed: vs(volcano), objects: us(group(volcano, "other", int64(2))),
			pod:     ofVolcano("g"),
			problem: "podgroups.scheduling.volcano.sh ns/g, which pods of the gang name, does not exist; create it",
		},
		"another namespace": {
			installed: vs(volcano), objects: us(group(volcano, "g", int64(4))),
			pod: ofVolcano("ns/g"), problem: "gangs never cross namespaces; give the name alone",
		},
		"a slash, not installed": {pod: ofVolcano("ns/g")},
		"Kubernetes, gang policy": {
			installed: vs(kubernetes), objects: us(group(kubernetes, "g", int64(5), gangPath...)),
			pod: ofKubernetes("g"), minimum: 5,
		},
		"Kubernetes, basic policy": {
			installed: vs(kubernetes), objects: us(group(kubernetes, "g", map[string]any{}, "schedulingPolicy", "basic")),
			pod: ofKubernetes("g"),
		},
		"Kubernetes, the older version": {
			installed: vs(kubernetes3),
			objects:   us(group(kubernetes3, "g", int64(5), gangPath...)), pod: ofKubernetes("g"), minimum: 5,
		},
		"Kubernetes 1.36": {
			installed: vs(kubernetes2), objects: us(group(kubernetes2, "g", int64(5), gangPath...)),
			pod: ofKubernetes("g"), minimum: 5,
		},

		"ours":         {pod: ofOurs("g", "3"), minimum: 3},
		"ours, agreed": {pod: ofOurs("g", "3"), others: []func(*v1.Pod){ofOurs("g", "3")}, minimum: 3},
		"ours, not agreed": {
			pod: on("n", ofOurs("g", "3")), others: []func(*v1.Pod){on("n", ofOurs("g", "4"))},
			problem: "members of globalreserve gang ns/g name different minimums; give all of them the same",
		},
		"ours, not agreed, none is bound": {
			pod: ofOurs("g", "4"), others: []func(*v1.Pod){createdLater(ofOurs("g", "3"))}, minimum: 3,
		},
		"ours, another":   {pod: ofOurs("g", "3"), others: []func(*v1.Pod){ofOurs("h", "4")}, minimum: 3},
		"ours, alone":     {pod: ofOurs("g", "1")},
		"ours, zero":      {pod: ofOurs("g", "0")},
		"ours, negative":  {pod: ofOurs("g", "-1"), problem: "gang-min'] is -1; say how many members the gang needs"},
		"ours, no number": {pod: ofOurs("g", "x"), problem: `gang-min'] is "x", which is no whole number`},
		"ours, no minimum": {
			pod:     ofOurs("g", ""),
			problem: "no minimum; say how many members the gang needs at .metadata.annotations['globalreserve.io/gang-min']",
		},
		"ours, with slash": {pod: ofOurs("a/g", "2"), problem: "never cross namespaces"},
		"the newer of them wrong": {
			pod: ofOurs("g", "3"), others: []func(*v1.Pod){createdLater(ofOurs("g", "x"))},
			problem: "no whole number",
		},
		"the older of them wrong": {
			pod: createdLater(ofOurs("g", "3")), others: []func(*v1.Pod){ofOurs("g", "x")}, minimum: 3,
		},

		"Koordinator, by annotations": {pod: koordinatorAnnotations, minimum: 3},
		"Koordinator, by label": {
			installed: vs(koordinator), objects: us(group(koordinator, "g", int64(6))),
			pod: koordinatorLabel, minimum: 6,
		},
		"Koordinator, by label, not installed":   {pod: koordinatorLabel},
		"Koordinator, annotations and no object": {installed: vs(koordinator), pod: koordinatorAnnotations, minimum: 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, tt.installed, tt.objects, func(t *testing.T, w *world) {
				pod := w.pod("a", tt.pod)
				w.pods.Put(pod)
				for _, change := range tt.others {
					w.pods.Put(w.pod("b", change))
				}
				require.NoError(t, w.gangs.WaitForSync(t.Context()))
				w.settle()
				assert.True(t, w.gangs.Synced())
				gang, ok := w.gangs.Of(pod)
				require.Equal(t, tt.minimum > 0 || tt.problem != "", ok, "%+v", gang)
				assert.Equal(t, tt.minimum, gang.Minimum)
				if tt.problem == "" {
					assert.Empty(t, gang.Problem)
				} else {
					assert.Contains(t, gang.Problem, tt.problem)
				}
				if ok {
					assert.Equal(t, pod.Gang.Key("ns"), gang.Key)
				}
			})
		})
	}
}

func vs(all ...schema.GroupVersionResource) []schema.GroupVersionResource { return all }
func us(all ...*unstructured.Unstructured) []*unstructured.Unstructured   { return all }

// The rule of a kind is for its gangs of one, too.
func TestRedirectOfKind(t *testing.T) {
	list := kinds.Default()[:1]
	list[0].Redirect = kinds.RedirectNever
	table, err := kinds.New(list)
	require.NoError(t, err)
	g := New(Options{Pods: cluster.NewPods(), Kinds: table})
	pod := func(mark *kinds.Mark) *cluster.Pod { return &cluster.Pod{Gang: mark} }
	assert.Equal(t, kinds.RedirectNever, g.Redirect(pod(&kinds.Mark{Kind: "globalreserve", Minimum: 1})))
	assert.Empty(t, g.Redirect(pod(&kinds.Mark{Kind: "volcano"})))
	assert.Empty(t, g.Redirect(pod(nil)))
}

// A pod that was read later than those the watch has brought may say something else.
func TestOfNewerPod(t *testing.T) {
	run(t, nil, nil, func(t *testing.T, w *world) {
		gang, ok := w.gangs.Of(w.pod("a", ofOurs("g", "3")))
		assert.True(t, ok, "nobody else is known")
		assert.Equal(t, 3, gang.Minimum)
		w.pods.Put(w.pod("a", ofOurs("g", "3")))
		gang, _ = w.gangs.Of(w.pod("a", ofOurs("g", "2")))
		assert.Equal(t, 2, gang.Minimum)
		assert.True(t, gang.Unsettled)
		w.pods.Put(w.pod("b", on("n", ofOurs("g", "3"))))
		gang, _ = w.gangs.Of(w.pod("a", ofOurs("g", "2")))
		assert.Equal(t, 3, gang.Minimum)
		assert.False(t, gang.Unsettled)
	})
}

// Objects come, change and go, and so do their definitions; OnChanged is called each time.
func TestChanges(t *testing.T) {
	run(t, vs(volcano), nil, func(t *testing.T, w *world) {
		pod, key := w.pod("a", ofVolcano("g")), keyOf("volcano", "g")
		w.pods.Put(pod)
		w.settle()
		groups := w.client.Resource(volcano).Namespace("ns")
		has := func(minimum int, problem string, told ...kinds.Key) {
			t.Helper()
			assert.ElementsMatch(t, told, w.settle())
			gang, ok := w.gangs.Of(pod)
			assert.Equal(t, minimum > 0 || problem != "", ok)
			assert.Equal(t, minimum, gang.Minimum)
			assert.Contains(t, gang.Problem, problem)
		}
		has(0, "does not exist")

		_, err := groups.Create(t.Context(), group(volcano, "g", int64(2)), metav1.CreateOptions{})
		require.NoError(t, err)
		has(2, "", key)
		gang, _ := w.gangs.Of(pod)
		require.NotNil(t, gang.Object)
		assert.Equal(t, "PodGroup", gang.Object.Kind)

		changed := group(volcano, "g", int64(2))
		changed.SetAnnotations(map[string]string{"a": "b"})
		_, err = groups.Update(t.Context(), changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		has(2, "") // nothing that counts has changed

		for _, minimum := range []int64{3, 2} { // it was not whole
			_, err = groups.Update(t.Context(), group(volcano, "g", minimum), metav1.UpdateOptions{})
			require.NoError(t, err)
			has(int(minimum), "", key)
			assert.Empty(t, w.gangs.Grown())
		}
		for i := range 4 {
			w.pods.Put(w.pod(fmt.Sprint("bound-", i), on("n", ofVolcano("g"))))
		}
		_, err = groups.Update(t.Context(), group(volcano, "g", int64(3)), metav1.UpdateOptions{})
		require.NoError(t, err)
		has(3, "", key)
		former := func(want int) {
			t.Helper()
			gang, _ := w.gangs.Get(key)
			assert.Equal(t, want, gang.Former)
			assert.Equal(t, want > 0, slices.Contains(w.gangs.Grown(), key))
		}
		former(2)
		for _, minimum := range []int64{5, 4} { // it is still that which it had before any of it
			_, err = groups.Update(t.Context(), group(volcano, "g", minimum), metav1.UpdateOptions{})
			require.NoError(t, err)
			has(int(minimum), "", key)
			former(2)
		}
		w.gangs.Settle(key)
		former(0)
		for _, tt := range [][2]int64{{6, 4}, {5, 4}, {4, 0}, {3, 0}} {
			_, err = groups.Update(t.Context(), group(volcano, "g", tt[0]), metav1.UpdateOptions{})
			require.NoError(t, err)
			has(int(tt[0]), "", key)
			former(int(tt[1]))
		}

		w.install()
		has(0, "", key)
		w.install(volcano)
		has(3, "", key)

		_, err = groups.Update(t.Context(), group(volcano, "g", int64(4)), metav1.UpdateOptions{})
		require.NoError(t, err)
		has(4, "", key)
		require.Equal(t, []kinds.Key{key}, w.gangs.Grown())
		require.NoError(t, groups.Delete(t.Context(), "g", metav1.DeleteOptions{}))
		has(0, "does not exist", key)
		former(0)
		assert.Empty(t, w.gangs.Grown())
	})
}

// TestBroken: a definition that cannot be read keeps its own gangs waiting, and nobody else.
func TestBroken(t *testing.T) {
	run(t, nil, us(group(volcano, "g", int64(4))), func(t *testing.T, w *world) {
		failure := error(errForbidden)
		w.failure.Store(&failure)
		w.install(volcano) // now, so that no list went well before
		w.settle()
		require.NoError(t, w.gangs.WaitForSync(t.Context()))
		assert.True(t, w.gangs.Synced())
		pod := w.pod("a", ofVolcano("g"))
		w.pods.Put(pod)
		gang, ok := w.gangs.Of(pod)
		assert.True(t, ok)
		assert.Contains(t, gang.Problem, "has not read the podgroups.scheduling.volcano.sh of the cluster lately")
		_, ok = w.gangs.Of(w.pod("b", ofOurs("g", "3")))
		assert.True(t, ok)

		w.failure.Store(nil)
		informer.Pause(t.Context(), time.Minute) // a reflector's longest
		assert.Equal(t, []kinds.Key{pod.Gang.Key("ns")}, w.settle())
		gang, _ = w.gangs.Of(pod)
		assert.Equal(t, 4, gang.Minimum)
	})
}

// TestNotDiscovered: as long as the API server has not said that it has no such kind, a pod that names a gang of it is
// none that is useful alone.
func TestNotDiscovered(t *testing.T) {
	run(t, []schema.GroupVersionResource{volcano}, us(group(volcano, "g", int64(4))), func(t *testing.T, w *world) {
		w.settle()
		assert.True(t, w.gangs.Synced(), "others do not wait for it")
		pod, other := w.pod("a", ofVolcano("g")), w.pod("c", ofKubernetes("g"))
		w.pods.Put(pod)
		w.pods.Put(other)
		for _, p := range []*cluster.Pod{pod, other} {
			gang, ok := w.gangs.Of(p)
			require.True(t, ok)
			assert.Contains(t, gang.Problem, "cannot tell how many members the gang needs")
		}
		_, ok := w.gangs.Of(w.pod("b", ofOurs("g", "3")))
		assert.True(t, ok)

		w.away.Store(false)
		assert.Contains(t, w.settle(), pod.Gang.Key("ns"))
		gang, _ := w.gangs.Of(pod)
		assert.Equal(t, 4, gang.Minimum)
		_, ok = w.gangs.Of(other)
		assert.False(t, ok, "the cluster has no such kind")
	}, func(w *world) { w.away.Store(true) })
}

// All has every gang that has members or an object, once.
func TestAll(t *testing.T) {
	alone := group(volcano, "alone", int64(1))
	run(t, vs(volcano), us(group(volcano, "b", int64(2)), group(volcano, "a", int64(3)), alone),
		func(t *testing.T, w *world) {
			w.pods.Put(w.pod("1", ofOurs("z", "2")))
			w.pods.Put(w.pod("2", ofOurs("y", "2")))
			w.pods.Put(w.pod("3", ofVolcano("a")))
			w.pods.Put(w.pod("4", ofVolcano("missing")))
			w.settle()
			var names []string
			for gang := range w.gangs.All {
				names = append(names, gang.Key.Name)
				got, ok := w.gangs.Get(gang.Key)
				assert.True(t, ok)
				assert.Equal(t, gang, got)
			}
			assert.ElementsMatch(t, []string{"a", "b", "z", "y", "missing"}, names)
			for range w.gangs.All {
				break // whoever has seen enough is yielded no more
			}
			_, ok := w.gangs.Get(keyOf("volcano", "alone"))
			assert.False(t, ok)
			assert.False(t, slices.Contains(names, "alone"))
		})
}

// Of an object only what counts is kept.
// A gang with tasks needs so many of each, and as many of any as its minimum is beyond that.
func TestLacks(t *testing.T) {
	gang := Gang{Minimum: 4, Tasks: map[string]int{"actor": 2, "learner": 1}}
	for _, tt := range []struct {
		actors, learners, others, want int
	}{
		{want: 4},
		{actors: 1, want: 3},
		{actors: 2, want: 2},
		{actors: 3, want: 1},
		{actors: 9, want: 1},
		{learners: 1, want: 3},
		{learners: 2, want: 2},
		{learners: 9, want: 2},
		{others: 1, want: 3},
		{others: 9, want: 3},
		{actors: 2, learners: 1, want: 1},
		{actors: 3, learners: 1},
		{actors: 2, learners: 2},
		{actors: 9, learners: 9},
		{actors: 2, learners: 1, others: 1},
		{actors: 1, learners: 1, others: 5, want: 1},
	} {
		has := map[string]int{"actor": tt.actors, "learner": tt.learners, "": tt.others}
		assert.Equal(t, tt.want, gang.Lacks(has), has)
	}
}

// Tasks are those of the object, and a change of them is news.
func TestTasksOfObject(t *testing.T) {
	object := group(volcano, "g", int64(3))
	of := func(tasks map[string]any) *unstructured.Unstructured {
		changed := object.DeepCopy()
		require.NoError(t, unstructured.SetNestedMap(changed.Object, tasks, "spec", "minTaskMember"))
		return changed
	}
	run(t, vs(volcano), us(of(map[string]any{"a": int64(2)})), func(t *testing.T, w *world) {
		w.settle()
		gang, ok := w.gangs.Of(w.pod("a-0", ofVolcano("g")))
		require.True(t, ok)
		assert.Equal(t, map[string]int{"a": 2}, gang.Tasks)
		groups := w.client.Resource(volcano).Namespace("ns")
		_, err := groups.Update(t.Context(), of(map[string]any{"a": int64(1)}), metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []kinds.Key{keyOf("volcano", "g")}, w.settle())
		_, err = groups.Update(t.Context(), of(map[string]any{"a": "x"}), metav1.UpdateOptions{})
		require.NoError(t, err)
		w.settle()
		gang, _ = w.gangs.Get(keyOf("volcano", "g"))
		assert.Contains(t, gang.Problem, `.spec.minTaskMember.a is "x"`)
	})
}

func TestObjectsAreKeptShort(t *testing.T) {
	full := group(volcano, "g", int64(4))
	full.SetAnnotations(map[string]string{"long": "text"})
	full.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
	run(t, vs(volcano), us(full), func(t *testing.T, w *world) {
		w.settle()
		kept, _ := w.gangs.objects["volcano"][0].get(keyOf("volcano", "g"))
		require.NotNil(t, kept)
		assert.Equal(t, &object{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "g", ResourceVersion: kept.ResourceVersion},
			minimum:    4,
			reference: &v1.ObjectReference{
				APIVersion: "scheduling.volcano.sh/v1beta1", Kind: "PodGroup", Namespace: "ns",
				Name: "g", UID: "g",
			},
		}, kept)
		assert.Contains(t, informer.NewsOf(w.gangs.Watches()...).Ages, "podgroups.v1beta1.scheduling.volcano.sh")
	})
}
