package reservations

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// failWrites lets the next count status writes fail.
func (w *world) failWrites(count int, err error) (failed *int) {
	failed = new(int)
	w.client.PrependReactor("update", "reservations", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "status" || *failed >= count {
			return false, nil, nil
		}
		*failed++
		return true, nil, err
	})
	return failed
}

func TestStatusWritesAreRepeated(t *testing.T) {
	resource := v1alpha1.Resource("reservations")
	cases := map[string]error{
		"somebody else wrote": apierrors.NewConflict(resource, "r", errors.New("changed")),
		"the API server went": errors.New("connection refused"),
	}
	bubble.Each(t, cases, func(t *testing.T, failure error) {
		w := newWorld(t, "n1")
		failed := w.failWrites(4, failure)
		w.create(newReservation("r", time.Minute, slot("a", "n1", 1000)))
		assert.Equal(t, []string{"a@n1"}, w.held("r"), "what is held does not wait for what is written")
		w.pass(10 * time.Second)
		assert.Equal(t, 4, *failed)
		assert.Equal(t, "Available AllSlotsHeld n1 0/1 a@n1=Reserved", w.shown("r"))
	})
}

// What the API server refuses is not written again with each attempt to place the reservation.
func TestRefusedStatusIsLeftAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		failed := w.failWrites(100, apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("policy")))
		w.create(newReservation("r", time.Minute, slot("a", "n1", 9000)))
		for range 20 {
			w.c.Retry()
			w.pass(2 * passPause)
		}
		assert.Equal(t, 1, *failed)
	})
}

// TestGoneBeforeItsStatus checks that an object deleted behind the watch's back keeps nothing.
func TestGoneBeforeItsStatus(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		rsv := newReservation("r", time.Minute, slot("a", "n1", 1000))
		w.c.take(rsv) // nothing is known of it, so nothing becomes of it
		assert.Zero(t, w.c.count())
		w.c.mu.Lock()
		w.c.observe(rsv)
		w.c.mu.Unlock()
		w.settle()
		assert.Zero(t, w.c.count())
		assert.Empty(t, w.held("r"))
	})
}

func TestStatusIsWrittenOnceForManyChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("r", time.Minute, slot("a", "n1", 1000)))
		w.create(newReservation("busy", time.Minute, slot("a", "n1", 9000)))
		w.client.ClearActions()
		for range 20 {
			w.bind("p", "n1", 500) // changes what is free, which is in the message
			w.deletePod("p")
			w.settle()
		}
		assert.LessOrEqual(t, statusWrites(w), 1)
	})
}

func statusWrites(w *world) int {
	count := 0
	for _, a := range w.client.Actions() {
		if a.GetVerb() == "update" && a.GetSubresource() == "status" {
			count++
		}
	}
	return count
}

func TestReleaseSlots(t *testing.T) {
	type testCase struct {
		slots []string
		err   error
		want  string
	}
	cases := map[string]testCase{
		"one":        {slots: []string{"a"}, want: "Available AllSlotsHeld n1 0/2 a@n1=Released b@n1=Reserved"},
		"one, twice": {slots: []string{"a", "a"}, want: "Available AllSlotsHeld n1 0/2 a@n1=Released b@n1=Reserved"},
		"all":        {slots: []string{"a", "b"}, want: "Failed AllSlotsReleased n1 0/2 a@n1=Released b@n1=Released"},
		"none":       {want: "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Reserved"},
		"unknown": {
			slots: []string{"a", "x"}, err: errNoSlot,
			want: "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Reserved",
		},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n1")
		w.create(newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000)))
		err := w.c.ReleaseSlots(w.ctx(), testNamespace, "r", tc.slots)
		require.ErrorIs(t, err, tc.err)
		assert.Equal(t, reservedIn(tc.want), w.held("r"), "released when it returns")
		w.settle()
		assert.Equal(t, tc.want, w.shown("r"))
	})
}

// Slots of a reservation that waits are given back, too, so that nothing is kept for them later, whichever server
// places the others.
func TestReleaseSlotsOfOneThatWaits(t *testing.T) {
	const withB = "Available AllSlotsHeld n1 0/2 a@=Released b@n1=Reserved"
	cases := map[string]string{
		"a": withB, "a a": withB, "b": "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@=Released", "a b": "deleted",
	}
	for slots, want := range cases {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprint(slots, " ", restarted), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.addNode("n1")
					w.bind("other", "n1", 3500)
					w.putPod(podInfo("p"))
					rsv := newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000))
					w.create(madeBy(forPod(rsv, "uid-of-p"), convert.MadeByReserve))
					require.Contains(t, w.shown("r"), "Pending")
					require.NoError(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", strings.Fields(slots)))
					w.settle()
					if restarted {
						w.stop()
						w.comeBack()
					}
					w.deletePod("other")
					w.pass(time.Second)
					w.assertShown("r", want, nil)
				})
			})
		}
	}
}

// What is not written is not given back: whoever asks again has it written, also when the others were placed meanwhile.
func TestReleaseSlotsOfOneThatWaitsAgain(t *testing.T) {
	for _, then := range []string{"wait", "are placed", "are used", "are none"} {
		t.Run("the others "+then, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.bind("other", "n1", 3500)
				w.putPod(podInfo("p"))
				rsv := newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000))
				w.create(madeBy(forPod(rsv, "uid-of-p"), convert.MadeByReserve))
				refused := apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", nil)
				slots := []string{"a"}
				if then == "are none" {
					slots = []string{"a", "b"}
				}
				release := func() error { return w.c.ReleaseSlots(w.ctx(), testNamespace, "r", slots) }
				w.failWrites(100, refused)
				require.ErrorContains(t, release(), "giving back slots of reservation ns/r")
				if then == "are placed" || then == "are used" {
					w.deletePod("other")
				}
				w.pass(time.Second)
				if then == "are used" {
					require.True(t, w.bind("q", "n1", 1000, slotRef("r", "b")))
				}
				assert.Len(t, w.c.ToGiveBack([]ledger.PodRef{podRef("p")}), 1)
				require.ErrorContains(t, release(), "giving back slots of reservation ns/r")
				w.failWrites(0, nil)
				w.client.ReactionChain = w.client.ReactionChain[2:]
				require.NoError(t, release())
				if r := w.get("r"); r != nil { // else it has ended, and is deleted by now
					assert.Equal(t, v1alpha1.SlotReleased, r.Status.Slots[0].State)
				}
				assert.Empty(t, w.c.ToGiveBack([]ledger.PodRef{podRef("p")}))
			})
		})
	}
}

// TestToGiveBackOfALostSlot loses the node of a slot: the ledger does not have the slot any more, and the object still
// says that it is kept.
func TestToGiveBackOfALostSlot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNode("n2")
		w.putPod(podInfo("p"))
		rsv := newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n2", 1000))
		w.create(madeBy(forPod(rsv, "uid-of-p"), convert.MadeByReserve))
		kept := func() []ledger.Slot { return w.c.ToGiveBack([]ledger.PodRef{podRef("p")})[0] }
		assert.Equal(t, []ledger.Slot{{Ref: slotRef("r", "a"), Node: "n1"}}, kept())
		w.c.MayDecide = informer.NewLatch().Wait // holds back what the controller writes by itself
		w.removeNode("n1")
		require.Empty(t, w.held("r"))
		assert.Equal(t, []ledger.Slot{{Ref: slotRef("r", "a")}}, kept())
		require.NoError(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}))
		assert.Equal(t, "Failed NodeGone n1 +1 0/2 a@n1=Released b@n2=Released", w.shown("r"))
		assert.Empty(t, kept())
	})
}

// A pod is found in what waits by its name and UID, in what /reserve was asked for alone, as long as it is not given
// back, and others do not count what was.
func TestToGiveBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.bind("other", "n1", 3500)
		w.putPod(podInfo("p"))
		big := func(name string) *v1alpha1.Reservation {
			rsv := newReservation(name, time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000))
			rsv.Spec.SchedulerName = "mine"
			return forPod(rsv, "uid-of-p")
		}
		w.create(madeBy(big("r"), convert.MadeByReserve))
		w.create(big("by-hand"))
		pods := []ledger.PodRef{
			podRef("q"), podRef("p"),
			{Namespace: testNamespace, Name: "p"},
			{Namespace: testNamespace, Name: "p", UID: "another"},
			{Namespace: "other", Name: "p"},
		}
		want := ledger.Slot{Ref: slotRef("r", "a"), Scheduler: "mine"}
		assert.Equal(t, map[int][]ledger.Slot{1: {want}, 2: {want}}, w.c.ToGiveBack(pods))
		require.NoError(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}))
		assert.Empty(t, w.c.ToGiveBack(pods))
		for _, p := range w.c.Pending() {
			assert.Len(t, p.Reservation.Spec.Slots, map[string]int{"r": 1, "by-hand": 2}[p.Reservation.Name])
		}
	})
}

func TestReleaseSlotsSaysSoInTheObjectFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000)))
		w.failWrites(1, apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", nil))
		require.ErrorContains(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}),
			"giving back slots of reservation ns/r")
		assert.Equal(t, []string{"a@n1", "b@n1"}, w.held("r"))
		w.settle()
		assert.Equal(t, "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Reserved", w.shown("r"))
	})
}

// TestReleaseSlotsOfANewObject gives back a slot of an object that the watch has not delivered.
func TestReleaseSlotsOfANewObject(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		require.ErrorIs(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}), errNoReservation)
		rsv := madeBy(newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n1", 1000)), convert.MadeByReserve)
		kept, err := convert.Slots(w.ledger.Table(), rsv)
		require.NoError(t, err)
		require.Equal(t, 2, w.ledger.Reserve(ledger.Plan{Slots: kept}, time.Now()).Granted)
		_, err = w.client.GlobalreserveV1alpha1().Reservations(testNamespace).Create(w.ctx(), rsv, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}))
		assert.Equal(t, []string{"b@n1"}, w.held("r"))
		w.settle()
		assert.Equal(t, "Available AllSlotsHeld n1 0/2 a@n1=Released b@n1=Reserved", w.shown("r"))
	})
}

// TestLostTrack lets more happen at once than the ledger remembers.
func TestLostTrack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		rsv := forPod(newReservation("r", time.Minute, slot("a", "n1", 500), slot("b", "n1", 500), slot("c", "n1", 500)), "")
		w.create(rsv)
		w.create(newReservation("old", 10*time.Second, slot("a", "n1", 500)))
		func() {
			w.c.mu.Lock() // so that no event is read
			defer w.c.mu.Unlock()
			w.ahead.Store(int64(15 * time.Second))
			w.ledger.Expire(w.c.now())
			p := ledger.Placement{Pod: podRef("p"), Node: "n1", Request: request(500)}
			_, refused := w.ledger.StartBind(&p, time.Now())
			require.Nil(t, refused)
			w.ledger.Confirm(p.Pod, "n1")
			w.putPod(&cluster.Pod{Ref: p.Pod, Node: "n1", Request: p.Request})
			w.ledger.ReleaseSlots(testNamespace, "r", "b")
			for range 1 << 14 {
				w.ledger.ObserveNode(ledger.NodeObservation{Name: "x"})
				w.ledger.RemoveNode("x")
			}
		}()
		w.settle()
		assert.Equal(t, "Available AllSlotsHeld n1 1/3 a@n1=Consumed:p b@n1=Released c@n1=Reserved", w.shown("r"))
		assert.Equal(t, "Expired Expired n1 0/1 a@n1=Released", w.shown("old"))
	})
}

// Any number of pods may share slots; the object has to fit into etcd.
func TestStatusListsSomePodsOfManyThatShare(t *testing.T) {
	slots := make([]v1alpha1.Slot, 200)
	kept := map[string]*ledger.SlotView{}
	for i := range slots {
		slots[i] = slot(fmt.Sprint("s", i), "n1", 1000)
		view := &ledger.SlotView{}
		for k := range 100 {
			pod := podRef(fmt.Sprint("p-", i, "-", k))
			view.Consumers = append(view.Consumers, ledger.Consumer{State: ledger.Bound, Pod: pod})
		}
		kept[slots[i].Name] = view
	}
	r := newRecord(newReservation("r", time.Minute, slots...))
	r.granted(make([]v1alpha1.SlotStatus, len(slots)), time.Now(), time.Now())
	r.project(kept, time.Now())
	listed := 0
	for _, s := range r.status.Slots {
		assert.Equal(t, v1alpha1.SlotConsumed, s.State)
		listed += len(s.Pods)
	}
	assert.Equal(t, v1alpha1.MaxSlots, listed)
	assert.Equal(t, "200/200", r.status.Consumed)
}
