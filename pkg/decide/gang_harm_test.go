package decide

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// reserveFor reserves capacity in memory for a pod on a node, for a caller, without a deadline.
func (w *gangWorld) reserveFor(pod *cluster.Pod, node, caller string) {
	w.t.Helper()
	w.reserveUntil(pod, node, caller, time.Time{})
}

func (w *gangWorld) reserveUntil(pod *cluster.Pod, node, caller string, deadline time.Time) {
	w.t.Helper()
	result := w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{w.o.Question.For(pod.WithCaller(caller), node)},
		ledger.AllOrNothing, deadline),
		w.o.Ledger.Clock.Now())
	require.Empty(w.t, result.Rejections)
}

// resize makes a node have so many CPUs.
func (w *gangWorld) resize(node string, cpus int64) {
	labels := map[string]string{v1.LabelHostname: node}
	w.ledger.ObserveNode(ledger.NodeObservation{Name: node, Labels: labels, Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: 1000 * cpus}, {Column: resources.Pods, Value: 110},
	}})
}

// What somebody has reserved for a member is used by whoever binds it, as it is without a gang.
func TestGangMemberWithReservation(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 2, 2, nil)
		w.reserveFor(pods[0], "n0", "alice")
		require.NoError(t, w.bind(pods[0].WithCaller("bob"), "n0"))
		assert.Equal(t, 1, w.kept())
	})
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 2, 2, nil)
		w.reserveFor(pods[0], "n0", "alice")
		w.resize("n0", 0)
		w.refusedAs(w.bind(pods[0].WithCaller("alice"), "n0"), ledger.InsufficientResource)
		assert.Equal(t, 1, w.kept(), "what was reserved")
	})
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 2, 2, nil)
		w.keepFor(pods[0], "n0")
		require.NoError(t, w.bind(pods[0], "n1"), "it is a preference")
		assert.Empty(t, w.ledger.ReservationSlots("ns", "r"))
	})
}

// A member that the watch brings bound, and done, while its gang is looked at is not missed: that would look as if the
// gang had not started, and what is kept for the others would be given up.
func TestMemberFinishesMeanwhile(t *testing.T) {
	w := newGangWorld(t, 1, 1)
	key := w.gang("a", 500, 2, nil)[0].Gang.Key("ns")
	for k := range 300 {
		name := fmt.Sprint("first-", k)
		first := w.pod("a", name, 2, nil)
		placement := w.o.Question.For(first, "n0")
		_, err := w.o.Ledger.StartBind(&placement)
		require.NoError(t, err)
		require.True(t, w.o.Ledger.Confirm(first.Ref, "n0"))
		done := *first
		done.Node, done.Finished = "n0", true
		began, counted := make(chan bool), make(chan headcount)
		go func() {
			close(began)
			counted <- w.headcount(&gangs.Gang{Key: key}, ledger.PodRef{})
		}()
		<-began
		w.o.Pods.Put(&done)
		w.ledger.RemovePod(first.Ref, 2)
		m := <-counted
		require.Equal(t, 1, m.bound)
		w.pod("", name, 0, withoutGang) // it goes
	}
}

// What somebody has reserved for a member ends neither with its gang, nor for another member.
func TestGangLeavesReservationsAlone(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.starting(3, 2, nil)
		var kept *cluster.Pod
		for _, pod := range pods[1:] {
			if home, ok := w.ledger.HomeOf(pod.Ref); ok {
				w.reserveFor(pod, home, "alice")
				kept = pod
			}
		}
		require.NotNil(t, kept)
		for _, pod := range pods[1:] {
			if pod != kept {
				require.NoError(t, w.bind(pod, "n1"))
			}
		}
		w.watch()
		assert.Empty(t, w.of)
		_, still := w.ledger.HomeOf(kept.Ref)
		assert.True(t, still)
	})
}

// What somebody has reserved for a member that the gang needs lasts as long as what is kept for the others: its own
// deadline is not that of the gang. The next bind puts off both.
func TestGangNeedsWhatIsReserved(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		pods := w.gang("a", 3, 3, nil)
		single := w.pod("", "single", 0, withoutGang)
		w.reserveUntil(pods[1], "n0", "alice", time.Now().Add(5*time.Second))
		w.reserveUntil(pods[2], "n0", "alice", time.Now().Add(5*time.Second))
		require.NoError(t, w.bind(pods[0], "n0"))
		<-time.After(50 * time.Second)
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)
		require.NoError(t, w.bind(pods[1], "n0"))
		w.watch()
		<-time.After(50 * time.Second)
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)
		w.lapse(time.Minute)
		w.watch()
		assert.Equal(t, []string{"globalreserve gang ns/a lacks 1"}, w.short())
		require.NoError(t, w.bind(single, "n0"))
	})
}

// What was reserved for a member is given back while its gang starts, as a scheduler does when a bind has come to
// nothing: it is kept for the gang from then on. Where the gang has not started, or is whole, it is anybody's.
func TestGangNeedsWhatIsGivenBack(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		pods := w.gang("a", 3, 2, nil)
		single := w.pod("", "single", 0, withoutGang)
		release := func(pod *cluster.Pod) {
			placement := w.o.Question.For(pod, "n0")
			w.arbiter().Release(&placement)
		}
		w.reserveFor(pods[0], "n0", "")
		release(pods[0])
		assert.Zero(t, w.kept())
		w.reserveFor(pods[1], "n0", "")
		w.resize("n0", 2)
		require.NoError(t, w.bind(pods[0], "n0"))
		release(pods[1])
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)
		require.NoError(t, w.bind(pods[1], "n0"))
		w.resize("n0", 3)
		w.reserveFor(pods[2], "n0", "")
		release(pods[2])
		require.NoError(t, w.bind(single, "n0"))
	})
}

// A member that cannot be bound any more gives back its slot, and not at the deadline; where its bind fails meanwhile
// nothing is kept for it.
func TestGangMemberIsBeingDeleted(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.starting(4, 4, nil)
		w.begin(pods[1], "n0")
		leave := func(pod *cluster.Pod) {
			leaving := *pod
			leaving.Deleting = true
			w.o.Pods.Put(&leaving)
		}
		leave(pods[3])
		w.watch()
		assert.Equal(t, 1, w.kept())
		leave(pods[1])
		require.True(t, w.bindFailed(pods[1].Ref, "n0"))
		assert.Equal(t, 1, w.kept(), "for the third")
	})
}

// What is kept stays kept where the watch has not brought the member yet that was bound first.
func TestGangStartsBeforeTheWatchKnows(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		w.gang("a", 3, 4, nil)
		pod := w.pod("a", "late", 4, nil)
		require.NoError(t, w.bind(pod, "n0"))
		w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref}) // as if it were not there
		w.watch()
		assert.Equal(t, 3, w.kept())
		require.True(t, w.o.Ledger.BindFailed(pod.Ref, "n0") || w.ledger.RemovePod(pod.Ref, 2))
		w.watch()
		assert.Zero(t, w.kept())
	})
}

// Pods that filter has refused are remembered as long as they are there, and woken also where the ledger has no news.
func TestGangWakesWhoWaits(t *testing.T) {
	gangTest(t, 1, 8, func(w *gangWorld) {
		pods := w.gang("a", 2, 3, nil)
		require.Equal(t, ledger.GangIncomplete, w.advise(pods[0]))
		w.watch()
		for k := range 100 {
			again := w.pod("a", "a-1", 3, func(p *v1.Pod) { p.UID = types.UID(fmt.Sprint("u-", k)) })
			require.Equal(t, ledger.GangIncomplete, w.advise(again))
		}
		w.watch()
		assert.Len(t, w.of[pods[0].Gang.Key("ns")].waiting, 2)
		w.pod("a", "a-2", 3, nil)
		w.watch()
		assert.ElementsMatch(t, []string{"a-0", "a-1"}, w.woken())
	})
	gangTest(t, 1, 8, func(w *gangWorld) {
		pods := w.starting(3, 3, nil)
		w.of[pods[0].Gang.Key("ns")].waiting[pods[1].Ref.UID] = pods[1] // refused a moment before
		w.watch()
		assert.Equal(t, []string{"a-1"}, w.woken())
	})
}

// Many pods are filtered at once, beside binds of gangs.
func TestGangsAreAdvisedAtOnce(t *testing.T) {
	gangTest(t, 1, 2, func(w *gangWorld) {
		var advised sync.WaitGroup
		for i := range 20 {
			pods := w.gang(fmt.Sprint("g-", i), 4, 4, nil)
			advised.Go(func() { assert.Equal(t, ledger.GangUnplaced, w.advise(pods[0])) })
		}
		advised.Wait()
		assert.Len(t, w.of, 20)
	})
}

// A server that could not decide for longer than slots last, while nobody else did, keeps again for what had started.
// Where it does not know any more how many members a gang needs, what it knew before counts.
func TestGangsGoOnWhenTheServerDecidesAgain(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		w.starting(4, 4, nil)
		waits := w.gang("b", 4, 4, nil)
		require.Equal(t, ledger.GangUnplaced, w.advise(waits[0]))
		w.lapse(2 * time.Minute)
		require.Zero(t, w.kept())
		assert.Equal(t, 1, w.takeOver())
		assert.Equal(t, 3, w.kept())
		assert.Empty(t, w.short())
		assert.Len(t, w.of[waits[0].Gang.Key("ns")].waiting, 1, "nobody is forgotten")
		w.lapse(2 * time.Minute)
		require.Zero(t, w.kept())
		w.pod("a", "a-1", 3, nil) // they disagree
		assert.Equal(t, 1, w.takeOver())
		assert.Equal(t, 3, w.kept())
	})
}

// unread makes pods of a gang be there whose object nobody has read, of which one is bound on n0.
func (w *gangWorld) unread(gang string, size int) (pods []*cluster.Pod) {
	pods = w.gang(gang, size, 0, func(p *v1.Pod) { delete(p.Annotations, v1alpha1.GangMinAnnotation) })
	w.ledger.ObservePod(ledger.PodObservation{Pod: pods[0].Ref, Node: "n0", Request: pods[0].Request, Scheduler: "s"})
	return pods
}

// A server takes over before it has read how many members gangs need. What may be for the rest of those that have
// started is given to nobody else until it has, and it binds none itself, which may be too many.
func TestGangsThatAreNotReadYet(t *testing.T) {
	redirectTest(t, 2, 2, func(w *gangWorld) {
		pods := w.unread("a", 4)
		w.seen(pods[0], "n0")
		assert.Equal(t, 1, w.takeOver())
		assert.Equal(t, 3, w.kept())
		stranger := w.pod("", "stranger", 0, withoutGang)
		w.refusedAs(w.bind(stranger, "n0"), ledger.InsufficientResource)
		w.pass(30 * time.Second)
		assert.Zero(t, w.boundBy())
		assert.Equal(t, 3, w.kept())
		require.NoError(t, w.bind(pods[1], "n0"), "members are bound")

		w.gang("a", 4, 3, nil) // its object is read
		w.watch()
		assert.Equal(t, 1, w.kept())
		require.NoError(t, w.bind(stranger, "n1"))
	})
	gangTest(t, 1, 3, func(w *gangWorld) {
		pods := w.unread("a", 8)
		assert.Equal(t, 1, w.takeOver())
		assert.Equal(t, 2, w.kept(), "as much as there is")
		w.resize("n1", 1)
		bound := false
		for _, pod := range pods[1:] {
			if _, kept := w.ledger.HomeOf(pod.Ref); !kept {
				require.NoError(t, w.bind(pod, "n1"), "nobody knows that the others are needed")
				bound = true
				break
			}
		}
		require.True(t, bound)
		w.pass(10 * time.Minute)
		assert.Zero(t, w.kept(), "nobody reads it")
		assert.Empty(t, w.short(), "nobody knows how many it lacks")
	})
}

// Of a gang that was not read as much is kept as fits, and before it what gangs need that were.
func TestGangsThatAreNotReadComeLast(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		w.unread("a", 3)
		w.pod("a", "a-00", 0, func(p *v1.Pod) {
			delete(p.Annotations, v1alpha1.GangMinAnnotation)
			ofCPUs(9)(p)
		})
		assert.Equal(t, 1, w.takeOver())
		assert.Equal(t, 2, w.kept())
	})
	gangTest(t, 2, 2, func(w *gangWorld) {
		w.unread("a", 8)
		half := w.gang("half", 3, 3, nil)
		w.ledger.ObservePod(ledger.PodObservation{Pod: half[0].Ref, Node: "n1", Request: half[0].Request, Scheduler: "s"})
		w.takeOver()
		for _, pod := range half[1:] {
			_, kept := w.ledger.HomeOf(pod.Ref)
			assert.True(t, kept, pod.Ref.Name)
		}
	})
}

// Slots count in the budget of whoever binds the gang, also those made later, and those that the next server makes.
func TestGangStaysWithinTheLimitsOfItsCaller(t *testing.T) {
	gangTest(t, 4, 2, func(w *gangWorld) {
		limits := &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: 4000}}}
		w.ledger.SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"bob": limits})
		pods, single := w.gang("a", 4, 4, nil), w.pod("", "single", 0, withoutGang)
		require.NoError(t, w.bind(pods[0].WithCaller("bob"), "n0"))
		w.gang("b", 2, 2, nil) // which has not started
		w.succeed()
		w.refusedAs(w.bind(single.WithCaller("bob"), "n2"), ledger.CallerLimit)
		require.NoError(t, w.bind(pods[1].WithCaller("bob"), "n0"))
		w.refusedAs(w.bind(single.WithCaller("bob"), "n2"), ledger.CallerLimit)
		for _, pod := range pods[2:] {
			w.ledger.RemovePod(pod.Ref, 2)
			w.pod("a", pod.Ref.Name, 4, func(p *v1.Pod) {
				p.UID += "-again"
				ofCPUs(2)(p)
			})
		}
		w.watch()
		assert.Zero(t, w.kept())
	})
}

// A gang of pods that each ask for something else takes long to look at: that is done seldom, and for no other gang's
// sake.
func TestGangOfManyKindsOfPods(t *testing.T) {
	gangTest(t, 40, 8, func(w *gangWorld) {
		size := int64(0)
		each := func(p *v1.Pod) {
			size++
			p.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewMilliQuantity(1000+size, resource.DecimalSI)
		}
		pods := w.gang("a", 300, 300, each)
		assert.Equal(t, ledger.Fits, w.advise(pods[1]), "which costs little")
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		err := w.bind(pods[1], "n0")
		w.refusedAs(err, ledger.GangWaits)
		assert.ErrorContains(t, err, "many different things")
		w.refusedAs(w.bind(w.gang("b", 200, 200, each)[0], "n0"), ledger.GangWaits)
		others := w.gang("c", 9, 9, nil)
		require.NoError(t, w.bind(others[0], "n0"), "which need not wait")
		w.undo(others)
		w.ledger.RemovePod(others[0].Ref, 2)
		<-time.After(time.Second)
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		<-time.After(time.Second)
		require.NoError(t, w.bind(w.gang("d", 150, 150, each)[0], "n1"))
	})
}

// Only a member that nothing has to be kept beside is offered capacity of preemptible slots: the bind of another one
// would be refused again and again.
func TestGangMemberThatMayPreempt(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		pods := w.gang("a", 3, 2, nil)
		assert.True(t, w.bindsAlone(w.pod("", "single", 0, withoutGang)))
		assert.False(t, w.bindsAlone(pods[0]))
		require.NoError(t, w.bind(pods[0], "n0"))
		require.NoError(t, w.bind(pods[1], "n0"))
		assert.True(t, w.bindsAlone(pods[2]))
		require.NoError(t, w.bind(pods[2], "n1"), "like a pod without a gang")
		assert.Zero(t, w.kept())
	})
}
