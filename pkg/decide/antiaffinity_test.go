package decide

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

// isWeb gives a pod a label.
func isWeb(p *v1.Pod) { p.Labels = map[string]string{"app": "web"} }

// apart has a pod be on no node with another one of the label.
func apart(p *v1.Pod) {
	isWeb(p)
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, TopologyKey: v1.LabelHostname,
		}},
	}}
}

// neighbor puts a pod on a node that is useful alone.
func (w *gangWorld) neighbor(node string, change func(*v1.Pod)) {
	w.pod("", "neighbor-"+node, 0, func(p *v1.Pod) {
		withoutGang(p)
		p.Spec.NodeName = node
		change(p)
	})
}

// admit has a Binding decided as the webhook does, and returns where it goes.
func (w *gangWorld) admit(pod *cluster.Pod, node string) (string, error) {
	said, err := w.gangKeeper.arbiter.AdmitBinding(w.t.Context(), &BindingQuery{Pod: pod.Ref, Node: node, User: "u"})
	if err == nil && said.RedirectTo != "" {
		node = said.RedirectTo
	}
	return node, err
}

// Two gangs that keep each other away do not take each other's nodes: one starts, and the other waits.
func TestGangsThatKeepEachOtherAway(t *testing.T) {
	redirectTest(t, 4, 8, func(w *gangWorld) {
		one, two := w.gang("a", 4, 4, apart), w.gang("b", 4, 4, apart)
		assert.Equal(t, ledger.Fits, w.advise(one[0]))
		require.NoError(t, w.bind(one[0], "n0"))
		places := map[string]bool{"n0": true}
		for _, pod := range one[1:] {
			home, _ := w.ledger.HomeOf(pod.Ref)
			places[home] = true
		}
		assert.Len(t, places, 4)
		for _, pod := range two {
			assert.Equal(t, ledger.GangUnplaced, w.advise(pod))
			w.refusedAs(w.bind(pod, "n0"), ledger.GangUnplaced)
			delete(places, "n0")
			for node := range places {
				w.refusedAs(w.bind(pod, node), ledger.AntiAffinity)
			}
		}
		w.pass(finishAfter + time.Second)
		assert.Equal(t, GangWhole, w.viewOf(one[0]).State, "the server binds what is left")
		assert.Equal(t, 3, w.boundBy())
		assert.Equal(t, GangWaiting, w.viewOf(two[0]).State)
	})
}

// Anti-affinity by hostname does not hold on a node without that label.
func TestAntiAffinityWithoutHostname(t *testing.T) {
	redirectTest(t, 1, 8, func(w *gangWorld) {
		placementtest.Nodes(w.ledger, 8000, "n0")
		pods := w.gang("a", 4, 4, apart)
		w.nodes.Put(&cluster.Node{Name: "n0"})
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.Equal(t, 3, w.kept())
		w.pass(2 * finishAfter)
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
	})
}

// A member with anti-affinity is redirected, and bound by the server, unless a pod on the node is one that it must not
// be with. The ledger does not know the labels of others, so that is read live.
func TestMemberApartGoesWhereItsSlotIs(t *testing.T) {
	type testCase struct {
		meanwhile func(w *gangWorld)
		stays     bool
	}
	tests := map[string]testCase{
		"it may":              {},
		"a pod has the label": {meanwhile: func(w *gangWorld) { w.neighbor("n1", isWeb) }, stays: true},
		"in another namespace": {meanwhile: func(w *gangWorld) {
			w.neighbor("n1", func(p *v1.Pod) {
				isWeb(p)
				p.Namespace = "other"
			})
		}},
		"that is not known": {meanwhile: func(w *gangWorld) { w.api.is = errors.New("timeout") }, stays: true},
	}
	for _, redirected := range []bool{true, false} {
		eachGang(t, 2, 1, tests, func(t *testing.T, w *gangWorld, test testCase) {
			w.rule(kinds.RedirectWhenRefused)
			pods := w.starting(2, 2, apart)
			if test.meanwhile != nil {
				test.meanwhile(w)
			}
			if !redirected {
				w.pass(finishAfter + time.Second)
				assert.Equal(t, test.stays, w.boundBy() == 0)
				return
			}
			node, err := w.admit(pods[1], "n0")
			if test.stays {
				w.refusedAs(err, ledger.InsufficientResource)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "n1", node)
		})
	}
}

// Nothing is read where a Binding is not refused, or is not to be redirected.
func TestBindingOfAPodApartIsNotLookedUp(t *testing.T) {
	redirectTest(t, 3, 1, func(w *gangWorld) {
		pods := w.starting(2, 2, apart)
		home, _ := w.ledger.HomeOf(pods[1].Ref)
		other := map[string]string{"n1": "n2", "n2": "n1"}[home]
		node, err := w.admit(pods[1], other)
		require.NoError(t, err)
		assert.Equal(t, other, node)
		assert.Zero(t, w.api.lists)
	})
	for _, rule := range []kinds.Redirect{kinds.RedirectNever, kinds.RedirectWhenRefused} {
		redirectTest(t, 2, 1, func(w *gangWorld) {
			w.rule(rule)
			pods := w.gang("a", 2, 2, func(p *v1.Pod) {
				apart(p)
				if rule != kinds.RedirectNever {
					hasVolume(p)
				}
			})
			require.NoError(t, w.bind(pods[0], "n0"))
			_, err := w.admit(pods[1], "n0")
			w.refusedAs(err, ledger.InsufficientResource)
			assert.Zero(t, w.api.lists)
		})
	}
}

// Of two members of which one keeps the other away only one goes to a node, also while the other one is being bound.
func TestMembersThatAreBeingBoundAreApart(t *testing.T) {
	test := func(t *testing.T, nodes int, check func(w *gangWorld, driver, worker *cluster.Pod)) {
		t.Helper()
		redirectTest(t, nodes, 4, func(w *gangWorld) {
			w.resize("n0", 1)
			first := w.pod("a", "a-0", 3, isWeb)
			driver, worker := w.pod("a", "a-1", 3, apart), w.pod("a", "a-2", 3, isWeb)
			require.NoError(t, w.bind(first, "n0"))
			check(w, driver, worker)
		})
	}
	test(t, 3, func(w *gangWorld, driver, worker *cluster.Pod) {
		places := map[string]bool{}
		for range 4 {
			w.pass(finishAfter)
			for _, pod := range []*cluster.Pod{driver, worker} {
				if node := w.api.read("ns", pod.Ref.Name).Spec.NodeName; node != "" {
					w.seen(pod, node)
					places[node] = true
				}
			}
		}
		assert.Equal(t, map[string]bool{"n1": true, "n2": true}, places)
		assert.Equal(t, GangWhole, w.viewOf(driver).State)
	})
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		test(t, 2, func(w *gangWorld, driver, worker *cluster.Pod) {
			pods := []*cluster.Pod{driver, worker}
			node, err := w.admit(pods[order[0]], "n0")
			require.NoError(t, err)
			assert.Equal(t, "n1", node)
			_, err = w.admit(pods[order[1]], "n0")
			w.refusedAs(err, ledger.InsufficientResource)
		})
	}
}

// Where a member was found to clash with a pod, capacity is kept for it on another node.
func TestMemberThatClashesGoesElsewhere(t *testing.T) {
	redirectTest(t, 3, 2, func(w *gangWorld) {
		w.resize("n0", 1)
		w.neighbor("n1", isWeb)
		pods := w.starting(2, 2, apart)
		w.pass(time.Minute)
		assert.Equal(t, "n2", w.api.read("ns", "a-1").Spec.NodeName)
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
	})
	redirectTest(t, 2, 2, func(w *gangWorld) { // until there is no other
		w.resize("n0", 1)
		w.neighbor("n1", isWeb)
		pods := w.starting(2, 2, apart)
		w.pass(2 * w.longest())
		require.Equal(t, GangShort, w.viewOf(pods[0]).State)
		assert.Contains(t, w.viewOf(pods[0]).Why, "; pods that must not be with its own are on n1")
		w.api.change(func() { clear(w.api.pods[types.NamespacedName{Namespace: "ns", Name: "neighbor-n1"}].Labels) })
		w.pass(10 * time.Minute)
		assert.Equal(t, "n1", w.api.read("ns", "a-1").Spec.NodeName)
	})
}

// What was found before a start that failed does not count for the next one.
func TestGangThatClashedStarts(t *testing.T) {
	redirectTest(t, 2, 1, func(w *gangWorld) {
		pods := w.gang("a", 2, 2, apart)
		w.neighbor("n1", isWeb)
		w.begin(pods[0], "n0")
		_, err := w.admit(pods[1], "n0")
		require.Error(t, err)
		require.True(t, w.bindFailed(pods[0].Ref, "n0"))
		w.api.change(func() { delete(w.api.pods, types.NamespacedName{Namespace: "ns", Name: "neighbor-n1"}) })
		w.pass(2 * time.Minute)
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.True(t, w.isKeptOn(pods[1].Ref, "n1"))
	})
}

// Members are distinguished by which pods keep them away.
func TestMembersOfSeveralLabels(t *testing.T) {
	for _, roles := range []string{"aabb", "abba", "baab", "bbaa", "abab"} {
		redirectTest(t, 3, 2, func(w *gangWorld) {
			w.resize("n2", 1)
			w.neighbor("n0", func(p *v1.Pod) {
				apart(p)
				term := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
				term.LabelSelector.MatchLabels = map[string]string{"role": "b"}
			})
			for k, role := range roles {
				w.pod("g", fmt.Sprint("g-", k), 5, func(p *v1.Pod) { p.Labels = map[string]string{"role": string(role)} })
			}
			first := w.pod("g", "z", 5, nil)
			require.NoError(t, w.bind(first, "n2"))
			w.pass(finishAfter + time.Second)
			assert.Equal(t, GangWhole, w.viewOf(first).State, roles)
		})
	}
}

// Where nothing is kept, anti-affinity is for schedulers to see to: the server refuses nothing for it.
func TestAntiAffinityOfPodsAlone(t *testing.T) {
	gangTest(t, 1, 8, func(w *gangWorld) {
		for k := range 2 {
			require.NoError(t, w.bind(w.pod("", fmt.Sprint("single-", k), 0, func(p *v1.Pod) {
				apart(p)
				withoutGang(p)
			}), "n0"))
		}
	})
}

// Slots are made where no pod keeps their pods away. So a gang that is short is made whole there.
func TestSlotsAreWhereNoPodKeepsThemAway(t *testing.T) {
	redirectTest(t, 3, 2, func(w *gangWorld) {
		w.repel("n0")
		pods := w.gang("a", 3, 3, nil)
		require.NoError(t, w.bind(pods[0], "n1"))
		assert.Equal(t, 2, w.kept())
		for _, pod := range pods[1:] {
			assert.False(t, w.isKeptOn(pod.Ref, "n0"))
		}
	})
	redirectTest(t, 2, 2, func(w *gangWorld) {
		w.repel("n0")
		w.rule(kinds.RedirectNever)
		pods := w.gang("a", 2, 2, nil)
		require.NoError(t, w.bind(pods[0], "n1"))
		w.resize("n1", 1)
		w.pass(w.longest() + time.Second)
		require.Equal(t, GangShort, w.viewOf(pods[0]).State)
		w.rule(kinds.RedirectWhenRefused)
		w.pass(finishAfter + time.Second)
		assert.Zero(t, w.boundBy(), "there is capacity where it cannot go")
		w.resize("n1", 2)
		w.pass(finishAfter + time.Second)
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
	})
}

// A Binding that was looked at for one node goes to no other one, where a member's slot is by now.
func TestBindingGoesOnlyWhereItWasLookedAt(t *testing.T) {
	for _, to := range []string{"n1", "n2"} {
		redirectTest(t, 3, 2, func(w *gangWorld) {
			w.resize("n0", 1)
			w.resize("n2", 0)
			pods := w.starting(2, 2, apart)
			require.True(t, w.isKeptOn(pods[1].Ref, "n1"))
			p := w.o.Question.For(pods[1], "n0")
			_, err := w.startBind(pods[1], &p, to)
			if to == "n1" {
				require.NoError(t, err)
				return
			}
			w.refusedAs(err, ledger.InsufficientResource)
		})
	}
}

// What is kept for a member after its bind has failed, and within a reservation for it, keeps others of its kind away.
func TestWhatIsKeptAnewIsApart(t *testing.T) {
	redirectTest(t, 2, 8, func(w *gangWorld) {
		pods, other := w.gang("a", 2, 2, apart), w.gang("b", 1, 1, apart)[0]
		require.NoError(t, w.bind(pods[0], "n0"))
		w.begin(pods[1], "n1")
		require.True(t, w.bindFailed(pods[1].Ref, "n1"))
		require.True(t, w.isKeptOn(pods[1].Ref, "n1"))
		w.refusedAs(w.bind(other, "n1"), ledger.AntiAffinity)
	})
	redirectTest(t, 2, 8, func(w *gangWorld) {
		pods, other := w.gang("a", 2, 2, apart), w.gang("b", 1, 1, apart)[0]
		w.keepFor(pods[1], "n1")
		require.NoError(t, w.bind(pods[0], "n0"))
		require.True(t, w.isKeptOn(pods[1].Ref, "n1"))
		w.refusedAs(w.bind(other, "n1"), ledger.AntiAffinity)
	})
}

// A pod whose anti-affinity is about pods of many namespaces is not judged: each would be read live.
func TestAntiAffinityInManyNamespaces(t *testing.T) {
	for _, others := range [][]string{{"a", "b", "c"}, {"a", "b", "c", "d"}} {
		redirectTest(t, 2, 1, func(w *gangWorld) {
			pods := w.gang("a", 2, 2, func(p *v1.Pod) {
				apart(p)
				terms := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
				(*terms)[0].Namespaces = append([]string{"ns"}, others...)
			})
			require.NoError(t, w.bind(pods[0], "n0"))
			_, err := w.admit(pods[1], "n0")
			if len(others) == 3 {
				require.NoError(t, err)
				assert.Equal(t, 4, w.api.lists)
				return
			}
			w.refusedAs(err, ledger.InsufficientResource)
			assert.Zero(t, w.api.lists)
		})
	}
}
