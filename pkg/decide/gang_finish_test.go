package decide

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
)

// boundBy is how many Bindings were sent, which are all the server's own.
func (w *gangWorld) boundBy() int {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	return w.api.posts
}

func hasVolume(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}}
}

// repel has a pod on a node keep all others away.
func (w *gangWorld) repel(node string) {
	w.label(node, "ssd")
	w.pod("", "neighbor", 0, func(p *v1.Pod) {
		withoutGang(p)
		p.Spec.NodeName = node
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{}, TopologyKey: "disk",
			}},
		}}
	})
}

// deny has the API server refuse all Bindings from now on, or none.
func (w *gangWorld) deny(is bool) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.bind = nil
	if is {
		w.api.bind = func(int) reply { return reply{err: apierrors.NewForbidden(podKind, "", nil)} }
	}
}

// The server binds what a scheduler leaves of a gang, where it is kept, with Events on the pods. A scheduler that binds
// members itself is not disturbed.
func TestRestOfAGangIsBound(t *testing.T) {
	redirectTest(t, 2, 2, func(w *gangWorld) {
		pods := w.starting(4, 4, nil)
		w.pass(finishAfter - time.Second)
		require.NoError(t, w.bind(pods[1], "n0"))
		w.pass(finishAfter - time.Second)
		assert.Zero(t, w.boundBy())
		w.pass(2 * time.Second)
		assert.Equal(t, 2, w.boundBy())
		for _, pod := range pods[2:] {
			assert.Equal(t, "n1", w.api.read("ns", pod.Ref.Name).Spec.NodeName)
		}
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
		assert.Empty(t, w.of)
		slices.Sort(w.events)
		require.Len(t, w.events, 2)
		assert.Contains(t, w.events[1], `a-3: GlobalReserve has bound it to node "n1" itself`)
		assert.Zero(t, w.gangKeeper.arbiter.finishing)
		assert.Equal(t, 2, metricstest.Counted(t, w.o.Metrics, "gang_bindings_total", "bound"))
	})
}

// Members are bound so many at a time, without a pause between. However many there are, and whatever becomes of their
// Bindings, there are turns left for other namespaces.
func TestRestOfLargeGangsIsBound(t *testing.T) {
	redirectTest(t, 3, 150, func(w *gangWorld) {
		for k := range 2 {
			require.NoError(t, w.bind(w.gang(fmt.Sprint("gang-", k), 50, 50, nil)[0], "n2"))
		}
		namespace := ""
		w.api.onBind = func(b *v1.Binding) { namespace = b.Namespace }
		w.api.bind = func(int) reply {
			if namespace == "other" {
				return honest
			}
			return reply{commit: before, hang: true}
		}
		w.pass(finishAfter + 2*time.Second)
		assert.Equal(t, mostFinishing/2, w.gangKeeper.arbiter.finishing, "the answers are on their way")
		other := w.gang("other", 2, 2, func(pod *v1.Pod) { pod.Namespace = "other" })
		require.NoError(t, w.bind(other[0], "n2"))
		w.pass(finishAfter + 2*time.Second)
		assert.NotEmpty(t, w.api.read("other", "other-1").Spec.NodeName)
		w.deny(false)
		w.pass(20 * time.Second)
		assert.Empty(t, w.of, "all are whole")
		assert.Zero(t, w.kept())
	})
}

// Pods that the server leaves to their scheduler do not keep others from being bound, nor do these put off reminders.
func TestRestThatCannotAllBeBound(t *testing.T) {
	redirectTest(t, 6, 100, func(w *gangWorld) {
		pods := w.gang("a", 2, 500, nil)
		for k := 2; k < 500; k++ {
			w.pod("a", fmt.Sprint("a-", k), 500, hasVolume)
		}
		require.NoError(t, w.bind(pods[0], "n0"))
		w.pass(finishAfter + time.Second)
		assert.Equal(t, 1, w.boundBy())
	})
	redirectTest(t, 1, 50, func(w *gangWorld) {
		pods := w.gang("a", 40, 41, nil)
		left := w.pod("a", "left", 41, hasVolume)
		require.NoError(t, w.bind(pods[0], "n0"))
		w.deny(true)
		reminded := 0
		for range 6 * finishAfter / time.Second {
			w.pass(time.Second)
			if w.o.Waiting.Nominated(left.Ref.UID, "n0") {
				reminded++
				w.o.Waiting.Settled(left.Ref.UID)
			}
		}
		assert.Equal(t, 6, reminded)
	})
}

// A pod of another scheduler that still ends, of a gang that was made anew, has no say.
func TestRestOfAGangThatIsMadeAnew(t *testing.T) {
	redirectTest(t, 1, 10, func(w *gangWorld) {
		former := func(p *v1.Pod) {
			p.Spec.NodeName, p.Spec.SchedulerName, p.DeletionTimestamp = "n0", "other", &metav1.Time{}
		}
		require.NoError(t, w.bind(w.gang("a", 2, 2, nil)[0], "n0"))
		w.o.Pods.Remove(w.pod("a", "former", 2, former))
		w.pass(finishAfter + time.Second)
		assert.Equal(t, 1, w.boundBy())
	})
}

// A scheduler that goes on by itself has its ten seconds for each pod, and so has that of a server that takes over.
func TestServerStandsBackAgain(t *testing.T) {
	redirectTest(t, 1, 60, func(w *gangWorld) {
		pods := w.gang("a", 2, 4, nil)
		for k := 2; k < 4; k++ {
			pods = append(pods, w.pod("a", fmt.Sprint("a-", k), 4, hasVolume))
		}
		require.NoError(t, w.bind(pods[0], "n0"))
		w.pass(finishAfter + 2*time.Second)
		require.Equal(t, 1, w.boundBy())
		w.ledger.RemovePod(pods[3].Ref, 9)
		w.o.Pods.Remove(pods[3])
		w.pod("a", "b", 4, nil)
		require.NoError(t, w.bind(pods[2], "n0"))
		w.pass(finishAfter - time.Second)
		assert.Equal(t, 1, w.boundBy())
		w.pass(2 * time.Second)
		assert.Equal(t, 2, w.boundBy())
	})
	redirectTest(t, 1, 60, func(w *gangWorld) {
		require.NoError(t, w.bind(w.gang("a", 40, 40, nil)[0], "n0"))
		w.pass(finishAfter + time.Second)
		before := w.boundBy()
		require.Positive(t, before)
		<-time.After(10 * time.Minute) // another server decides
		w.o.Ledger.Expire(w.o.Ledger.Clock.Now())
		require.Equal(t, 1, w.takeOver())
		<-time.After(2 * time.Second)
		w.watch()
		<-time.After(2 * time.Second)
		w.watch()
		synctest.Wait()
		assert.Equal(t, before, w.boundBy())
	})
}

// Where a scheduler was faster nothing is reported, and nothing is put off.
func TestSchedulerIsFaster(t *testing.T) {
	cases := map[string]bool{"bound": true, "being bound": false}
	eachGang(t, 1, 4, cases, func(t *testing.T, w *gangWorld, confirmed bool) {
		w.rule(kinds.RedirectWhenRefused)
		pods := w.starting(4, 4, nil)
		key := pods[1].Gang.Key("ns")
		p := w.o.Question.For(pods[1], "n0")
		_, err := w.startBind(pods[1], &p, whereKept)
		require.NoError(t, err)
		if confirmed {
			require.True(t, w.ledger.Confirm(pods[1].Ref, "n0"))
		}
		require.True(t, w.gangKeeper.arbiter.bindForGang(key, pods[1], "n0", "c"))
		w.pass(time.Second)
		assert.Zero(t, w.boundBy())
		assert.Empty(t, w.events)
		assert.Zero(t, w.of[key].backoff)
		assert.Zero(t, metricstest.Counted(t, w.o.Metrics, "gang_bindings_total"))
	})
}

// The server leaves to its scheduler what it cannot judge, and what it was not to: that is nominated for its node.
func TestRestOfAGangIsNotBound(t *testing.T) {
	type testCase struct {
		pods      func(p *v1.Pod)
		meanwhile func(w *gangWorld)
		why       string
	}
	eachGang(t, 2, 1, map[string]testCase{
		"the policy says never": {
			why: "redirecting is off for it", meanwhile: func(w *gangWorld) { w.rule(kinds.RedirectNever) },
		},
		"a taint": {meanwhile: func(w *gangWorld) { w.taint("n1") }},
		"it is another scheduler's": {why: "another scheduler", meanwhile: func(w *gangWorld) {
			w.pod("a", "a-1", 2, func(p *v1.Pod) { p.Spec.SchedulerName = "other" })
		}},
		"whose the bound one is the watch has not brought": {meanwhile: func(w *gangWorld) { w.pod("a", "a-0", 2, nil) }},
		"somebody has reserved it": {meanwhile: func(w *gangWorld) {
			pod, _ := w.o.Pods.Pod("ns", "a-1")
			w.giveUp(w.of[pod.Gang.Key("ns")], 1)
			w.reserveFor(pod, "n1", "alice")
		}},
		"it has a volume": {pods: hasVolume, why: "pod ns/a-1 to its scheduler: it has volumes of its own"},
	}, func(t *testing.T, w *gangWorld, test testCase) {
		w.rule(kinds.RedirectWhenRefused)
		pods := w.starting(2, 2, test.pods)
		if test.meanwhile != nil {
			test.meanwhile(w)
		}
		w.pass(finishAfter + time.Second)
		assert.Zero(t, w.boundBy())
		assert.True(t, w.o.Waiting.Nominated(pods[1].Ref.UID, "n1"))
		said := w.viewOf(pods[0]).Why
		assert.Contains(t, said, test.why)
		assert.Equal(t, test.why != "", said != "")
		w.pass(2 * w.longest())
		assert.Zero(t, w.boundBy(), "nor where it is short")
	})
}

// What cannot be bound is tried again with pauses while something is kept for it, which that does not put off.
func TestRestOfAGangThatIsRefused(t *testing.T) {
	redirectTest(t, 1, 4, func(w *gangWorld) {
		pods := w.starting(3, 3, nil)
		w.deny(true)
		w.pass(finishAfter + 5*time.Second)
		assert.Equal(t, 2, w.boundBy())
		assert.Equal(t, 2, w.kept(), "nobody else is given it")
		w.pass(finishAfter)
		assert.Equal(t, 4, w.boundBy())
		w.pass(2*finishAfter - 7*time.Second)
		assert.Equal(t, 4, w.boundBy())
		assert.False(t, w.o.Waiting.Nominated(pods[1].Ref.UID, "n0"))
		w.pass(time.Hour)
		assert.Less(t, w.boundBy(), 60, "the pauses grow")
		w.deny(false)
		w.pass(20 * time.Minute)
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
	})
}

// A gang that is short is made whole as soon as there is capacity for the rest, and not half before.
func TestShortGangIsMadeWhole(t *testing.T) {
	redirectTest(t, 1, 4, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		w.rule(kinds.RedirectNever)
		require.NoError(t, w.bind(pods[0], "n0"))
		w.resize("n0", 1)
		w.pass(w.longest() + time.Second)
		require.Equal(t, GangShort, w.viewOf(pods[0]).State)
		w.others.Add(1)
		w.watch()
		assert.Equal(t, searchesPerWatch, w.searches, "it may not make it whole")
		w.rule(kinds.RedirectWhenRefused)
		w.resize("n0", 3)
		for range 6 {
			w.others.Add(1)
			w.pass(finishAfter)
		}
		assert.Zero(t, w.boundBy(), "there is capacity for two of three")
		assert.Equal(t, searchesPerWatch, w.searches, "nothing changes")
		w.resize("n0", 4)
		w.pass(4 * time.Second)
		assert.Equal(t, 3, w.boundBy())
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
		assert.Zero(t, w.kept())
	})
}

// Where the rest is of different sizes it is bound as all of it fits, by one that the server may bind.
func TestShortGangOfSizesIsMadeWhole(t *testing.T) {
	for _, large := range []string{"n0", "n1"} {
		for name, second := range map[string]func(p *v1.Pod){"two sizes": nil, "the first has a volume": hasVolume} {
			t.Run(large+" "+name, func(t *testing.T) {
				small := map[string]string{"n0": "n1", "n1": "n0"}[large]
				redirectTest(t, 2, 4, func(w *gangWorld) {
					w.rule(kinds.RedirectNever)
					first := w.pod("a", "a-0", 3, nil)
					left := w.pod("a", "a-1", 3, second)
					w.pod("a", "a-2", 3, ofCPUs(2))
					require.NoError(t, w.bind(first, small))
					w.resize(small, 1)
					w.resize(large, 0)
					w.pass(w.longest() + time.Second)
					require.Equal(t, GangShort, w.viewOf(first).State)
					w.rule(kinds.RedirectWhenRefused)
					w.resize(small, 2)
					w.resize(large, 2)
					w.pass(finishAfter + time.Second)
					if second != nil {
						assert.True(t, w.isKeptOn(left.Ref, small))
						require.NoError(t, w.bind(left, small))
					}
					assert.Equal(t, GangWhole, w.viewOf(first).State)
				})
			})
		}
	}
}

// It is made whole, too, where the rest asks for very different things, where only a search of all nodes finds places,
// and after an API server that has hung for long.
func TestShortGangIsMadeWholeAtLast(t *testing.T) {
	cpu := func(text string) func(p *v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(text) }
	}
	few := func(w *gangWorld) int { return 1 + len(w.gang("a", 3, 4, nil)) }
	type testCase struct {
		gang func(w *gangWorld) (size int)
		hang time.Duration
	}
	eachGang(t, 4, 16, map[string]testCase{
		"very different": {gang: func(w *gangWorld) int {
			for k := range maxPacked + 5 {
				w.pod("a", fmt.Sprint("a-", k), maxPacked+6, cpu(fmt.Sprintf("%dm", 100+k)))
			}
			return maxPacked + 6
		}},
		"few places": {gang: func(w *gangWorld) int {
			w.label("n1", "ssd")
			w.pod("a", "a-large", 5, cpu("16"))
			w.pod("a", "a-picky", 5, func(p *v1.Pod) { cpu("2")(p); onDisk("ssd")(p) })
			w.pod("a", "a-medium", 5, cpu("4"))
			w.pod("a", "a-small", 5, nil)
			return 5
		}},
		"after 10 minutes": {hang: 10 * time.Minute, gang: few},
		"after 15 minutes": {hang: 15 * time.Minute, gang: few},
	}, func(t *testing.T, w *gangWorld, test testCase) {
		w.rule(kinds.RedirectWhenRefused)
		w.rule(kinds.RedirectNever)
		first := w.pod("a", "first", test.gang(w), nil)
		require.NoError(t, w.bind(first, "n3"))
		for k := range 4 {
			w.resize(fmt.Sprint("n", k), 1)
		}
		w.pass(w.longest() + time.Second)
		require.Equal(t, GangShort, w.viewOf(first).State)
		w.rule(kinds.RedirectWhenRefused)
		w.api.bind = func(int) reply { return reply{hang: true} }
		for k, cpus := range []int64{16, 4, 8} {
			w.resize(fmt.Sprint("n", k), cpus)
		}
		w.pass(test.hang)
		w.deny(false)
		w.pass(10 * time.Minute)
		assert.Equal(t, GangWhole, w.viewOf(first).State)
	})
}

// Many gangs of one namespace that are short do not keep that of another one waiting for its turn, nor for a look for
// capacity.
func TestShortGangsOfNamespacesTakeTurns(t *testing.T) {
	const many = 60
	redirectTest(t, 4, 100, func(w *gangWorld) {
		w.rule(kinds.RedirectNever)
		gangs := make([]*cluster.Pod, many)
		for i := range gangs {
			gangs[i] = w.gang(fmt.Sprint("gang-", i), 3, 3, nil)[0]
		}
		for _, first := range gangs {
			for node := 0; w.bind(first, fmt.Sprint("n", node)) != nil; node++ {
				require.Less(t, node, 4)
			}
		}
		other := w.gang("other", 3, 3, func(pod *v1.Pod) { pod.Namespace = "other" })[0]
		require.NoError(t, w.bind(other, "n3"))
		w.pass(w.longest() + time.Second)
		isOther := func(s *startingGang) bool { return s.Key.Namespace == "other" }
		assert.Contains(t, []int{0, 1}, slices.IndexFunc(w.inTurn(), isOther), "capacity is looked for each namespace")
		w.rule(kinds.RedirectWhenRefused)
		w.others.Add(1)                                                           // as a change of the policy does
		w.api.bind = func(int) reply { return reply{commit: before, hang: true} } // so that few can be under way
		w.pass(2 * time.Second)
		state, _ := w.ledger.Standing(ledger.PodRef{Namespace: "other", Name: "other-1", UID: "u-other-1"})
		assert.NotEqual(t, ledger.NoAllocation, state)
	})
}

// Where the node of a slot will not do any more, the slot moves to another one, and the server goes on there, or waits.
func TestSlotMovesFromANodeThatWillNotDo(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		cases := map[string]func(w *gangWorld, node string){"cordoned": (*gangWorld).cordon, "tainted": (*gangWorld).taint}
		eachGang(t, nodes, 1, cases, func(t *testing.T, w *gangWorld, spoil func(*gangWorld, string)) {
			w.rule(kinds.RedirectWhenRefused)
			pods := w.starting(2, 2, nil)
			home, _ := w.ledger.HomeOf(pods[1].Ref)
			spoil(w, home)
			w.pass(finishAfter + time.Second)
			other := map[int]string{2: "", 3: map[string]string{"n1": "n2", "n2": "n1"}[home]}[nodes]
			assert.Equal(t, other, w.api.read("ns", "a-1").Spec.NodeName)
			assert.Equal(t, nodes == 3, w.viewOf(pods[0]).State == GangWhole)
		})
	}
}
