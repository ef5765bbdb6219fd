package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// gangReader reads pods with the kinds of gangs that are known without a policy file.
func gangReader(t testing.TB) Reader {
	t.Helper()
	table, err := kinds.New(kinds.Default())
	require.NoError(t, err)
	return Reader{Table: resources.NewTable(), Gangs: table}
}

// member is a pod of a gang of ours.
func member(name, gang, minimum string, changes ...func(*v1.Pod)) *v1.Pod {
	return newPod(func(p *v1.Pod) {
		p.Name, p.Annotations = name, map[string]string{v1alpha1.GangAnnotation: gang, v1alpha1.GangMinAnnotation: minimum}
		for _, change := range changes {
			change(p)
		}
	}, "1")
}

func phase(of v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = of } }

func deleting(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// TestMembersAtRandom compares what is kept with what all pods say, after any changes.
func TestMembersAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pods, reader, held := NewPods(), gangReader(t), map[string]*Pod{}
	for range 3000 {
		name := fmt.Sprint(random.IntN(20))
		if now := held[name]; now != nil && random.IntN(4) == 0 {
			pods.Remove(now)
			delete(held, name)
		} else {
			var changes []func(*v1.Pod)
			for _, change := range []func(*v1.Pod){
				on("n"), deleting, phase(v1.PodSucceeded), phase(v1.PodFailed),
				func(p *v1.Pod) { p.Annotations = nil },
			} {
				if random.IntN(4) == 0 {
					changes = append(changes, change)
				}
			}
			held[name] = reader.Compact(member(name, fmt.Sprint("g", random.IntN(4)), fmt.Sprint(2+random.IntN(2)), changes...))
			if gang := held[name].Gang; gang != nil {
				gang.Task = []string{"", "x", "y"}[random.IntN(3)]
			}
			pods.Put(held[name])
		}
		for _, gang := range []string{"g0", "g1", "g2", "g3"} {
			key := kinds.Key{Kind: "globalreserve", Namespace: "ns", Name: gang}
			var waits []*Pod
			bound, finished, says, begun, tasks := 0, 0, map[int64]bool{}, map[int64]bool{}, map[string]int{}
			for _, p := range held {
				switch {
				case p.Gang == nil || p.Gang.Name != gang:
					continue
				case p.Finished:
					finished++
					tasks[p.Gang.Task]++
					begun[p.Gang.Minimum] = true
				case p.Deleting:
				case p.Node != "":
					bound++
					tasks[p.Gang.Task]++
					begun[p.Gang.Minimum] = true
				default:
					waits = append(waits, p)
				}
				says[p.Gang.Minimum] = true
			}
			gotWaits, gotBound, gotFinished := pods.Gang(key)
			require.ElementsMatch(t, waits, gotWaits)
			require.Equal(t, [2]int{bound, finished}, [2]int{gotBound, gotFinished})
			size := pods.GangSize(key)
			require.Equal(t, [3]int{len(waits), bound, finished}, [3]int{size.Pending, size.Bound, size.Finished})
			require.Equal(t, tasks, pods.GangTasks(key))
			word, known := pods.GangSays(key, nil)
			require.Equal(t, len(says) > 0, known)
			require.Equal(t, len(begun) < 2, word.Agreed)
			require.True(t, !known || word.Settled == (len(begun) > 0 || len(says) == 1))
			require.True(t, !known || begun[word.Minimum] || len(begun) == 0 && says[word.Minimum])
			require.True(t, len(begun) < 2 || word.Minimum == 2, "the one that says less")
			require.Equal(t, known, slices.Contains(slices.Collect(pods.GangKeys()), key))
		}
	}
	for _, p := range held {
		pods.Remove(p)
	}
	assert.Empty(t, pods.gangs.of)
	assert.Empty(t, pods.gangs.byKey)
}

// While no member has begun, what the newest one says counts; afterwards it is what those say that have.
func TestNewestMemberSays(t *testing.T) {
	pods, reader := NewPods(), gangReader(t)
	key := kinds.Key{Kind: "globalreserve", Namespace: "ns", Name: "g"}
	at := func(name, minimum string, second int64, changes ...func(*v1.Pod)) *Pod {
		return reader.Compact(member(name, "g", minimum, append(changes, func(p *v1.Pod) {
			p.CreationTimestamp = metav1.Unix(second, 0)
		})...))
	}
	says := func(asks *Pod, minimum int64, agreed, settled bool) {
		t.Helper()
		word, known := pods.GangSays(key, asks)
		assert.True(t, known)
		assert.Equal(t, []any{minimum, agreed, settled}, []any{word.Minimum, word.Agreed, word.Settled})
	}
	says(at("new", "5", 1), 5, true, true)
	for i := range 3 {
		pods.Put(at(fmt.Sprint("old-", i), "3", 10))
	}
	says(nil, 3, true, true)
	pods.Put(at("new", "4", 20))
	says(nil, 4, true, false)
	says(pods.find(podKey{"ns", "old-0"}), 4, true, false)
	says(at("newer", "2", 20), 2, true, false)
	says(at("newer", "3", 30), 3, true, false)
	pods.Put(at("old-0", "3", 10, on("n"), deleting))
	says(nil, 4, true, false)
	pods.Put(at("new", "4", 20, on("n")))
	says(nil, 4, true, true)
	pods.Put(at("old-0", "3", 10, on("n")))
	says(nil, 3, false, true)
	pods.Put(at("new", "4", 20, phase(v1.PodFailed)))
	says(nil, 3, true, true)
}

// A gang keeps its place while it has members, whatever becomes of these.
func TestGangsAsFirstSeen(t *testing.T) {
	pods, reader := NewPods(), gangReader(t)
	for i := range 20 {
		pods.Put(reader.Compact(member(fmt.Sprint(i), fmt.Sprint("g", i), "2")))
	}
	pods.Put(reader.Compact(member("0", "g0", "2", on("n"))))
	var names, want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("g", i))
	}
	for key := range pods.GangKeys() {
		names = append(names, key.Name)
	}
	assert.Equal(t, want, names)
	for key := range pods.GangKeys() {
		assert.Equal(t, "g0", key.Name)
		break
	}
}

// What says which gang a pod is a member of is not cut out of it before it is decoded.
func TestLeanMembers(t *testing.T) {
	_, lean := decoders()
	reader := gangReader(t)
	for name, tt := range map[string]struct {
		change func(*v1.Pod)
		want   kinds.Mark
	}{
		"spec": {
			func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")} },
			kinds.Mark{Kind: "kubernetes", Name: "g"},
		},
		"label": {
			func(p *v1.Pod) { p.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "g"} },
			kinds.Mark{Kind: "scheduler-plugins", Name: "g"},
		},
		"annotations": {
			func(p *v1.Pod) {
				p.Annotations = map[string]string{v1alpha1.GangAnnotation: "g", v1alpha1.GangMinAnnotation: "7"}
			},
			kinds.Mark{Kind: "globalreserve", Name: "g", Minimum: 7},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := typicalPod(1)
			assert.Nil(t, reader.Compact(decoded(t, lean, encode(t, pod)).(*v1.Pod)).Gang)
			tt.change(pod)
			assert.Equal(t, &tt.want, reader.Compact(decoded(t, lean, encode(t, pod)).(*v1.Pod)).Gang)
		})
	}
}

// Members that are done and gone count with those that are there, as many as are remembered.
func TestMembersThatAreGone(t *testing.T) {
	pods, reader := NewPods(), gangReader(t)
	key := kinds.Key{Kind: "globalreserve", Namespace: "ns", Name: "g"}
	of := func(name, owner string, changes ...func(*v1.Pod)) *Pod {
		return reader.Compact(member(name, "g", "3", append(changes, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
		})...))
	}
	finished := func() int {
		_, _, count := pods.Gang(key)
		assert.Equal(t, count, pods.GangSize(key).Finished)
		return count
	}
	pods.Put(of("runs", "1", on("n")))
	pods.Put(of("other", "2", on("n")))
	for i := range mostDone + 1 {
		r := of(fmt.Sprint("done-", i), "1", on("n"), phase(v1.PodSucceeded))
		r.Gang.Task = "t"
		pods.Put(r)
		deleted := *r
		deleted.Deleting = true
		pods.Put(&deleted)
		pods.Remove(&deleted)
	}
	assert.Equal(t, mostDone, finished())
	assert.Empty(t, pods.gangs.succeeded)
	assert.Equal(t, map[string]int{"": 2, "t": mostDone}, pods.GangTasks(key))
	pods.Remove(of("other", "2", on("n")))
	pods.Put(of("more", "2"))
	pods.Put(of("runs", "3", on("n")))
	assert.Equal(t, mostDone, finished(), "the gang has two controllers, and what was there is none")
	ended := pods.gangs.gone(key)
	again := func() { pods.gangs.byKey[key].done = ended }
	pods.Put(of("again", "3"))
	assert.Zero(t, finished(), "it is another run")
	again()
	pods.Put(of("done-0", "1"))
	assert.Zero(t, finished(), "so it is where one is made anew")
	bare := reader.Compact(member("bare", "g", "3", on("n"), phase(v1.PodSucceeded)))
	pods.Put(bare)
	pods.Remove(bare)
	assert.Zero(t, finished())
	assert.Zero(t, pods.gangs.done.Len())

	last := of("last", "1", on("n"), phase(v1.PodSucceeded))
	pods.Put(last)
	pods.Put(reader.Compact(newPod(func(p *v1.Pod) { p.Name = "last" }, "1"))) // it is no member any more
	assert.Empty(t, pods.gangs.succeeded)
	again()
	pods.Put(of("done-1", "9"))
	assert.Zero(t, finished())
	again()
	anew := of("done-1", "1")
	anew.Ref.UID = "anew"
	pods.Put(anew) // the watch did not see the one before go
	assert.Zero(t, finished())
}

// The gangs of others have nobody's members be forgotten that are done and gone, while there are members.
func TestMembersThatAreGoneOfManyGangs(t *testing.T) {
	pods, reader := NewPods(), gangReader(t)
	of := func(gang, name string, changes ...func(*v1.Pod)) *Pod {
		return reader.Compact(member(name, gang, "3", append(changes, on("n"), func(p *v1.Pod) {
			p.UID = types.UID(name)
			p.OwnerReferences = []metav1.OwnerReference{{UID: "1", Controller: ptr.To(true)}}
		})...))
	}
	end := func(gang string) {
		r := of(gang, gang+"-0", phase(v1.PodSucceeded))
		pods.Put(r)
		pods.Remove(r)
	}
	finished := func(gang string) int {
		return pods.GangSize(kinds.Key{Kind: "globalreserve", Namespace: "ns", Name: gang}).Finished
	}
	pods.Put(of("g", "g-1"))
	end("g")
	for i := range mostGangsDone + 1 {
		end(fmt.Sprint("job", i))
	}
	assert.Equal(t, 1, finished("g"))
	assert.Equal(t, mostGangsDone, pods.gangs.done.Len())
	for _, gang := range []string{"job0", "job1"} {
		pods.Put(of(gang, gang+"-1"))
	}
	assert.Equal(t, 0, finished("job0"), "there were more of them since")
	assert.Equal(t, 1, finished("job1"))
	assert.Equal(t, mostGangsDone-1, pods.gangs.done.Len())
	pods.Put(of("job2", "job2-0"))
	assert.Equal(t, 0, finished("job2"), "it is another run")
}
