package decide

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func ofPriority(priority int32) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

func onDisk(disk string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": disk} }
}

// finish has pods end well.
func (w *gangWorld) finish(pods []*cluster.Pod) {
	for _, pod := range pods {
		w.ledger.RemovePod(pod.Ref, 2)
		w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref, Finished: true, Gang: pod.Gang})
	}
}

// Of two gangs that wait the one of the higher priority comes first, whoever was refused before.
func TestGangOfHigherPriorityComesFirst(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		filler := w.gang("f", 4, 4, nil)
		for k, pod := range filler {
			require.NoError(t, w.bind(pod, map[bool]string{true: "n0", false: "n1"}[k < 2]))
		}
		low, high := w.gang("low", 3, 3, ofPriority(1)), w.gang("high", 3, 3, ofPriority(2))
		require.Equal(t, ledger.GangUnplaced, w.advise(low[0]))
		<-time.After(time.Second)
		require.Equal(t, ledger.GangUnplaced, w.advise(high[0]))
		w.finish(filler)
		w.refusedAs(w.bind(low[0], "n0"), ledger.GangWaits)
		assert.Equal(t, []string{"high-0"}, w.woken(), "who comes first is told to start")
		w.refusedAs(w.bind(w.gang("new", 3, 3, nil)[0], "n0"), ledger.GangWaits)
		highest := w.gang("highest", 3, 3, ofPriority(3))
		require.NoError(t, w.bind(highest[0], "n0"), "and waits for nobody")
	})
}

// A gang that waits keeps nobody waiting who fits beside it.
func TestGangsThatFitBesideEachOtherDoNotWait(t *testing.T) {
	gangTest(t, 3, 2, func(w *gangWorld) {
		filler := w.gang("f", 4, 4, nil)
		for k, pod := range filler {
			require.NoError(t, w.bind(pod, map[bool]string{true: "n0", false: "n1"}[k < 2]))
		}
		first := w.gang("first", 3, 3, nil)
		w.refusedAs(w.bind(first[0], "n2"), ledger.GangUnplaced)
		<-time.After(time.Second)
		w.finish(filler)
		require.NoError(t, w.bind(w.gang("beside", 3, 3, nil)[0], "n0"))
		require.NoError(t, w.bind(first[0], "n2"))
	})
}

// A gang that could start and does not, though its scheduler tries, has its turn, and then others have theirs.
func TestGangThatDoesNotStartHasItsTurn(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		single := w.pod("", "single", 0, withoutGang)
		filler := w.gang("f", 2, 2, nil)
		require.NoError(t, w.bind(single, "n0"))
		require.NoError(t, w.bind(filler[0], "n1"))
		require.NoError(t, w.bind(filler[1], "n1"))
		first, later := w.gang("first", 2, 2, nil), w.gang("later", 2, 2, nil)
		tries := func() { assert.Error(t, w.bind(first[0], "nowhere"), "it tries the wrong node all the time") }
		w.refusedAs(w.bind(first[0], "n0"), ledger.GangUnplaced)
		w.finish(filler)
		<-time.After(time.Second)
		for range 3 {
			tries()
			w.refusedAs(w.bind(later[0], "n1"), ledger.GangWaits)
			<-time.After(patience / 3)
		}
		tries()
		<-time.After(time.Second)
		require.NoError(t, w.bind(later[0], "n1"))
	})
}

// Each member is kept for where it may be, also beside others that ask for as much and may be elsewhere.
func TestGangMembersOnNodesOfTheirOwn(t *testing.T) {
	gangTest(t, 4, 1, func(w *gangWorld) {
		w.label("n1", "ssd")
		w.label("n3", "hdd")
		plain, ssd, hdd := w.pod("a", "a-plain", 4, nil), w.pod("a", "a-ssd", 4, onDisk("ssd")),
			w.pod("a", "a-hdd", 4, onDisk("hdd"))
		w.pod("a", "b-plain", 4, nil)
		w.refusedAs(w.bind(plain, "n1"), ledger.GangUnplaced)
		require.NoError(t, w.bind(plain, "n0"))
		for pod, node := range map[*cluster.Pod]string{ssd: "n1", hdd: "n3"} {
			home, _ := w.ledger.HomeOf(pod.Ref)
			assert.Equal(t, node, home, "%s", pod.Ref)
		}
	})
	gangTest(t, 3, 1, func(w *gangWorld) {
		w.label("n1", "ssd")
		pods := w.gang("a", 2, 2, onDisk("ssd"))
		assert.Equal(t, ledger.GangUnplaced, w.advise(pods[0]), "there is room, and none of it suits")
	})
}

// Of more equal pods than the gang needs those of the highest priority are kept for; one that is bound where capacity
// is kept for another stands in for it.
func TestGangKeepsForTheMostUrgent(t *testing.T) {
	gangTest(t, 1, 2, func(w *gangWorld) {
		pods := w.gang("a", 3, 2, nil)
		urgent := w.pod("a", "urgent", 2, ofPriority(5))
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.Equal(t, 1, w.kept())
		_, kept := w.ledger.HomeOf(urgent.Ref)
		assert.True(t, kept)
		require.NoError(t, w.bind(pods[1], "n0"), "in the place of the other")
		assert.Zero(t, w.kept())
		w.watch()
		assert.Empty(t, w.of)
	})
}

// While no member is bound the newest says how many the gang needs: a controller that makes them anew with another
// number may wait for the first of these before it deletes the others.
func TestGangIsMadeAnewWithAnotherMinimum(t *testing.T) {
	gangTest(t, 1, 2, func(w *gangWorld) {
		old := w.gang("a", 3, 3, nil)
		w.refusedAs(w.bind(old[0], "n0"), ledger.GangUnplaced)
		fresh := w.pod("a", "fresh", 2, func(p *v1.Pod) { p.CreationTimestamp.Time = time.Now() })
		require.NoError(t, w.bind(fresh, "n0"))
		assert.Equal(t, 1, w.kept())
		for _, pod := range old {
			if _, kept := w.ledger.HomeOf(pod.Ref); kept {
				require.NoError(t, w.bind(pod, "n0"))
			}
		}
		w.watch()
		assert.Zero(t, w.kept())
		assert.Empty(t, w.short())
	})
}

// The watch has not brought the first member bound. What a newer pod says changes nothing of what the gang has started
// with; nor does it for the next server, which reads the first member bound.
func TestNewestDoesNotChangeAGangThatStarts(t *testing.T) {
	for _, says := range []int{2, 9} {
		gangTest(t, 1, 3, func(w *gangWorld) {
			pods := w.starting(3, 3, nil)
			newest := w.pod("a", "newest", says, func(p *v1.Pod) { p.CreationTimestamp.Time = time.Now() })
			w.watch()
			require.Equal(t, 2, w.kept())
			w.refusedAs(w.bind(newest, "nowhere"), ledger.NodeUnknown)
			require.Equal(t, 2, w.kept())
			w.pod("a", "a-0", 3, func(p *v1.Pod) { p.Spec.NodeName = "n0" })
			w.watch()
			w.succeed()
			assert.Equal(t, 2, w.kept())
			w.bindAll(pods[1:])
			w.pass(3 * time.Minute)
			assert.Empty(t, w.short())
		})
	}
}

// What is kept for a member that was made anew ends with what is kept for the others.
func TestGangMemberMadeAnewPutsOffNothing(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		pods := w.starting(4, 4, nil)
		w.watch()
		<-time.After(80 * time.Second)
		w.ledger.RemovePod(pods[3].Ref, 2)
		w.pod("a", "a-3", 4, func(p *v1.Pod) { p.UID = "u-again" })
		assert.Equal(t, 2, w.kept())
		w.watch()
		require.Equal(t, 3, w.kept())
		w.lapse(11 * time.Second)
		w.watch()
		assert.Zero(t, w.kept())
		assert.Len(t, w.short(), 1)
	})
}

// In slots that several pods may share a gang may start, where all else is full.
func TestGangStartsInSharedSlots(t *testing.T) {
	gangTest(t, 1, 4, func(w *gangWorld) {
		w.reserveAs("a", ledger.Aligned, keptOn{"n0", 3})
		w.fill()
		pods := w.gang("a", 3, 3, nil)
		assert.Equal(t, ledger.Fits, w.advise(pods[0]))
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.Equal(t, 2, w.kept())
	})
}

// A member that is created with a node may never come: nothing is kept for the others before one is bound.
func TestCreatedMemberStartsNoGang(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 3, 3, nil)
		created := w.reader.Compact(newPod("created"))
		created.Gang = pods[0].Gang
		create := func() error {
			p := w.o.Question.For(created, "n1")
			_, err := w.startCreated(created, &p)
			return err
		}
		w.refusedAs(create(), ledger.GangIncomplete)
		assert.Zero(t, w.kept())
		require.NoError(t, w.bind(pods[0], "n0"))
		require.NoError(t, create())
	})
}

// A gang that is made anew under its name while its former pods end is kept whole, too.
func TestGangMadeAnewWhileItsFormerPodsEnd(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		for _, pod := range w.gang("a", 4, 4, nil) {
			require.NoError(t, w.bind(pod, "n0"))
			w.pod("a", pod.Ref.Name, 4, func(p *v1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "n0", &metav1.Time{} })
		}
		w.watch()
		other := w.pod("", "single", 0, withoutGang)
		require.NoError(t, w.bind(other, "n1"))
		first := w.pod("a", "again-0", 4, nil)
		for _, name := range []string{"again-1", "again-2", "again-3"} {
			w.pod("a", name, 4, nil)
		}
		w.refusedAs(w.bind(first, "n1"), ledger.GangUnplaced)
		assert.Zero(t, w.kept())
		w.ledger.RemovePod(other.Ref, 2)
		require.NoError(t, w.bind(first, "n1"))
		assert.Equal(t, 3, w.kept())
	})
}

// A gang was whole, two of its pods have succeeded and are deleted, and the third has failed and is made anew: it is
// bound. In another run of the gang all are needed.
func TestMembersThatAreDoneAndGone(t *testing.T) {
	by := func(owner string) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = nil
			if owner != "" {
				p.OwnerReferences = []metav1.OwnerReference{{
					Kind: "Job", Name: "train", UID: types.UID(owner), Controller: ptr.To(true),
				}}
			}
		}
	}
	type testCase struct {
		owner, then string // of the pods, and of those that are made anew
		ends        func(last *cluster.Pod)
		name        string // of the pod that is made anew
		other       bool   // another run
	}
	eachGang(t, 1, 3, map[string]testCase{
		"the same controller":      {owner: "1", then: "1"},
		"another controller":       {owner: "1", then: "2", other: true},
		"one that was done":        {owner: "1", then: "1", name: "a-0", other: true},
		"the one that was not":     {owner: "1", then: "1", name: "a-2"},
		"no controller":            {other: true},
		"a controller in addition": {then: "1", other: true},
		"deleted while it ran": {
			owner: "1", then: "1", other: true, ends: func(last *cluster.Pod) { last.Deleting = true },
		},
		"failed": {owner: "1", then: "1", other: true, ends: func(last *cluster.Pod) { last.Gang = nil }},
	}, func(t *testing.T, w *gangWorld, test testCase) {
		pods := w.gang("a", 3, 3, by(test.owner))
		w.bindAll(pods)
		w.watch()
		for _, pod := range pods {
			last := *pod
			last.Node, last.Finished = "n0", true
			if pod == pods[2] {
				last.Gang = nil
			}
			if test.ends != nil {
				test.ends(&last)
			}
			w.o.Pods.Put(&last)
			w.ledger.RemovePod(pod.Ref, 2)
			deleted := last
			deleted.Deleting = true
			w.o.Pods.Put(&deleted)
			w.o.Pods.Remove(&deleted)
		}
		again := w.pod("a", cmp.Or(test.name, "a-2-anew"), 3, func(p *v1.Pod) {
			by(test.then)(p)
			p.UID = "again"
		})
		err := w.bind(again, "n0")
		if test.other {
			w.refusedAs(err, ledger.GangIncomplete)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, "Whole: 0 pending, 0 kept, 1 bound, 2 finished", counts(*w.viewOf(again)))
	})
}
