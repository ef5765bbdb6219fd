package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestRestart kills the server and starts another one, with changes in between that nobody watched.
func TestRestart(t *testing.T) {
	// bound makes a pod that says what it was bound with, as if the binding was written and nobody has seen it.
	bound := func(w *world, name, node string, milliCPU int64, slot ledger.SlotRef) {
		info := &cluster.Pod{
			Ref: podRef(name), Node: node, Request: request(milliCPU),
			Annotations: &cluster.Annotations{Matched: slot},
		}
		w.putPod(info)
	}
	gang := func(ttl time.Duration) *v1alpha1.Reservation {
		return newReservation("r", ttl, slot("a", "n1", 1000), slot("b", "", 2000))
	}
	made := func() *v1alpha1.Reservation {
		rsv := forPod(madeBy(gang(time.Minute), convert.MadeByReserve), "uid-of-p")
		rsv.Spec.Slots[1] = slot("b", "n2", 2000)
		return rsv
	}
	// podToCome is what a caller reserved for a pod that did not exist then, and comes is that pod.
	podToCome := func(phase v1alpha1.ReservationPhase) *v1alpha1.Reservation {
		rsv := made()
		rsv.Spec.SchedulerName, rsv.Spec.Slots[0].Pod.UID = "forger", ""
		rsv.Annotations, rsv.Status.Phase = map[string]string{v1alpha1.CallerAnnotation: "c"}, phase
		return rsv
	}
	comes := func(w *world, scheduler string) {
		bound(w, "p", "", 0, ledger.SlotRef{})
		w.pods[podRef("p").String()].Scheduler = scheduler
	}
	forAll := func(uid types.UID, policy v1alpha1.AllocatePolicy) *v1alpha1.Reservation {
		rsv := newReservation("r", time.Minute, slot("a", "n1", 1000))
		rsv.UID, rsv.Spec.AllocatePolicy = uid, policy
		rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
		return rsv
	}
	type testCase struct {
		before, between, after func(w *world)
		want                   string
		held                   []string // where these are not those that are shown as reserved
	}
	granted := func(w *world) { w.create(gang(time.Minute)) }
	const (
		whole   = "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Reserved"
		expired = "Expired Expired n1 0/2 a@n1=Released b@n1=Released"
	)
	cases := map[string]testCase{
		"what is available stays so": {before: granted, want: whole},
		"what has ended stays so": {
			before: func(w *world) { w.create(gang(time.Minute)); w.pass(2 * time.Minute) }, want: expired,
		},
		"a pod was bound with a slot": {
			before: granted, between: func(w *world) { bound(w, "p", "n1", 500, slotRef("r", "b")) },
			want: "Available AllSlotsHeld n1 1/2 a@n1=Reserved b@n1=Consumed:p",
		},
		"all slots were used": {before: granted, between: func(w *world) {
			bound(w, "p", "n1", 500, slotRef("r", "b"))
			bound(w, "q", "n1", 500, slotRef("r", "a"))
		}, want: "Succeeded Succeeded n1 2/2 a@n1=Consumed:q b@n1=Consumed:p"},
		"made anew while a pod of the first one runs": {before: func(w *world) {
			w.create(forAll("1", v1alpha1.AllocateOnce))
			w.bind("p", "n1", 1000, slotRef("r", "a"))
			require.Equal(w.t, "Succeeded Succeeded n1 1/1 a@n1=Consumed:p", w.shown("r"))
			w.delete("r")
			w.create(forAll("2", v1alpha1.AllocateOnce))
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"made anew while a pod shares the first one": {before: func(w *world) {
			w.create(forAll("1", v1alpha1.AllocateAligned))
			w.bind("p", "n1", 500, slotRef("r", "a"))
			w.delete("r")
			w.create(forAll("2", v1alpha1.AllocateAligned))
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"shared by a pod": {before: func(w *world) {
			w.create(forAll("1", v1alpha1.AllocateAligned))
			w.bind("p", "n1", 500, slotRef("r", "a"))
		}, want: "Available AllSlotsHeld n1 1/1 a@n1=Consumed:p", held: []string{"a@n1"}},
		"a pod that is on another node used nothing": {
			before: granted, between: func(w *world) { bound(w, "p", "n2", 500, slotRef("r", "b")) }, want: whole,
		},
		"expired meanwhile": {before: granted, between: func(w *world) { w.pass(2 * time.Minute) }, want: expired},
		"extended meanwhile": {before: granted, between: func(w *world) {
			w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Spec.TTL.Duration = time.Hour })
			w.pass(2 * time.Minute)
		}, want: whole},
		"expires after the restart": {before: granted, after: func(w *world) { w.pass(2 * time.Minute) }, want: expired},
		"its node is another one now": {before: granted, between: func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.nodes["n1"] = &cluster.Node{Name: "n1", UID: "new"}
		}, want: "Failed NodeGone n1 0/2 a@n1=Released b@n1=Released"},
		"its node is gone, and nothing says which one it was": {before: granted, between: func(w *world) {
			w.change("r", func(rsv *v1alpha1.Reservation) {
				rsv.Status.Slots[0].NodeUID, rsv.Status.Slots[1].NodeUID = "", ""
			})
			delete(w.nodes, "n1")
		}, want: "Pending NodeUnknown  0/2"},
		"made by the server, and nothing written yet": {between: func(w *world) {
			bound(w, "p", "", 0, ledger.SlotRef{})
			w.create(made())
		}, want: "Available AllSlotsHeld n1 +1 0/2 a@n1=Reserved b@n2=Reserved"},
		"made by the server, and its pod is gone": {
			between: func(w *world) { w.create(made()) },
			want:    "Available AllSlotsHeld n1 +1 0/2 a@n1=Released b@n2=Reserved",
		},
		"made by the server, and one that did not decide any more said that it waits": {between: func(w *world) {
			rsv := made()
			rsv.Status.Phase = v1alpha1.ReservationPending
			w.create(rsv)
			bound(w, "p", "n1", 1000, ledger.SlotRef{})
		}, want: "Available AllSlotsHeld n1 +1 1/2 a@n1=Consumed:p b@n2=Reserved"},
		"made by the server for a pod that did not exist, and came meanwhile": {
			between: func(w *world) { w.create(podToCome("")); comes(w, "forger") },
			want:    "Available AllSlotsHeld n1 +1 0/2 a@n1=Reserved b@n2=Reserved",
		},
		"made by the server for a pod that did not exist, and is another scheduler's": {
			between: func(w *world) { w.create(podToCome("")); comes(w, "owner") },
			want:    "Available AllSlotsHeld n1 +1 0/2 a@n1=Released b@n2=Reserved",
		},
		"placed anew for a pod that did not exist, and is another scheduler's": {
			between: func(w *world) {
				w.create(podToCome(""))
				comes(w, "owner")
				bound(w, "q", "n1", 3500, ledger.SlotRef{})
			},
			after: func(w *world) { w.deletePod("q"); w.pass(time.Second) },
			want:  "Available AllSlotsHeld n1 +1 0/2 a@n1=Released b@n2=Reserved",
		},
		"a slot given back stays given back": {before: func(w *world) {
			w.create(gang(time.Minute))
			require.NoError(w.t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}))
		}, want: "Available AllSlotsHeld n1 0/2 a@n1=Released b@n1=Reserved"},
		"a slot given back stays given back while the others wait": {
			before: func(w *world) {
				w.create(gang(time.Minute))
				require.NoError(w.t, w.c.ReleaseSlots(w.ctx(), testNamespace, "r", []string{"a"}))
			},
			between: func(w *world) {
				bound(w, "p", "n1", 3500, ledger.SlotRef{})
				bound(w, "q", "n2", 3500, ledger.SlotRef{})
			},
			after: func(w *world) {
				require.Contains(w.t, w.shown("r"), "Pending NoNodeFits  0/2 a@=Released")
				w.deletePod("q")
				w.pass(time.Second)
			},
			want: "Available AllSlotsHeld n2 0/2 a@=Released b@n2=Reserved",
		},
		"its pod is gone, and stays so while the others wait": {
			between: func(w *world) {
				w.create(made())
				bound(w, "q", "n2", 3500, ledger.SlotRef{})
			},
			after: func(w *world) { w.deletePod("q"); w.pass(time.Second) },
			want:  "Available AllSlotsHeld n2 0/2 a@=Released b@n2=Reserved",
		},
		"its capacity was taken meanwhile, and there is other capacity": {
			before:  func(w *world) { w.create(newReservation("r", time.Minute, slot("a", "", 3000))) },
			between: func(w *world) { bound(w, "p", "n1", 3000, ledger.SlotRef{}) },
			want:    "Available AllSlotsHeld n2 0/1 a@n2=Reserved",
		},
		"made by the server, and over while its capacity is taken": {between: func(w *world) {
			bound(w, "p", "", 0, ledger.SlotRef{})
			bound(w, "q", "n1", 3500, ledger.SlotRef{})
			w.create(made())
		}, after: func(w *world) { w.pass(2 * time.Minute) }, want: "deleted"},
		"some pods run, and the capacity for the others was taken": {
			before: func(w *world) {
				w.create(gang(time.Minute))
				w.bind("p", "n1", 1000, slotRef("r", "a"))
			},
			between: func(w *world) { bound(w, "q", "n1", 2500, ledger.SlotRef{}) },
			want:    "Failed CapacityLost n1 1/2 a@n1=Consumed:p b@n1=Released",
		},
		"its node was cordoned meanwhile": {before: granted, between: func(w *world) { w.cordoned.Store(true) }, want: whole},
		"a status that lost its slots": {
			before:  granted,
			between: func(w *world) { w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Status.Slots = nil }) },
			want:    whole,
		},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n1", "n2")
		for _, step := range []func(*world){tc.before, (*world).stop, tc.between, (*world).comeBack, tc.after} {
			if step != nil {
				step(w)
			}
		}
		w.settle()
		w.assertShown("r", tc.want, tc.held)
		assert.Equal(t, len(w.held("r")), w.ledger.Stats().Slots, "slots of nothing else")
	})
}

// TestLimitsOfCallersAfterRestart checks that objects and pods show a server whose limits they count against, and that
// what was not granted before is not beyond these.
func TestLimitsOfCallersAfterRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		by := func(caller string, rsv *v1alpha1.Reservation) *v1alpha1.Reservation {
			rsv.Annotations = map[string]string{v1alpha1.CallerAnnotation: caller}
			return rsv
		}
		w.create(by("c", newReservation("r", time.Minute, slot("a", "n1", 1000))))
		require.True(t, w.bindPod(ledger.Placement{Pod: podRef("p"), Node: "n1", Request: request(500), Caller: "c"}))
		w.stop()
		forged := by("c", newReservation("forged", time.Minute, slot("a", "n1", 1000)))
		forged.CreationTimestamp.Time = forged.CreationTimestamp.Add(time.Second)
		available(forged, "n1")
		w.create(forged)
		w.newServer()
		cpu := func(value int64) []resources.Amount { return []resources.Amount{{Column: resources.CPU, Value: value}} }
		w.ledger.Observer().SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"c": {Use: cpu(2000)}})
		w.start()
		assert.Equal(t, []string{"a@n1"}, w.held("r"))
		assert.Equal(t, cpu(1500), w.ledger.Budgets(ledger.OfCaller)[0].Used)
		assert.Empty(t, w.held("forged"), "it was not granted before")
		w.create(by("c", newReservation("more", time.Minute, slot("a", "n1", 1000))))
		assert.Contains(t, w.shown("more"), "Pending CallerLimit")
		w.create(by("other", newReservation("of-another", time.Minute, slot("a", "n1", 1000))))
		assert.Equal(t, []string{"a@n1"}, w.held("of-another"))
	})
}

// TestPriorityAfterRestart checks that a reservation without a priority has that
// of its pods again, which the server reads after the reservations.
func TestPriorityAfterRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pod := podInfo("p")
		pod.Priority = 10
		w.putPod(pod)
		rsv := newReservation("r", time.Minute, slot("a", "n1", 3000))
		rsv.Spec.Preemptible = true
		rsv.Spec.Slots[0].Pod = &v1alpha1.PodReference{Name: "p", UID: pod.Ref.UID}
		w.create(rsv)
		w.stop()
		w.comeBack()
		other := ledger.Placement{Pod: podRef("other"), Node: "n1", Request: request(3000), Priority: 5, Preempt: true}
		assert.False(t, w.bindPod(other), "the pod of the reservation is more important")
		other.Priority = 11
		assert.True(t, w.bindPod(other))
		w.settle()
		assert.Equal(t, "Preempted Preempted n1 0/1 a@n1=Released", w.shown("r"))
	})
}

// TestReadyComesLast checks that nobody decides before objects, pods and nodes are matched.
func TestReadyComesLast(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("r", time.Minute, slot("a", "n1", 1000)))
		w.stop()
		w.newServer()
		w.known = informer.NewLatch()
		w.start()
		require.NoError(t, w.c.Listed.Wait(w.ctx()))
		assert.Empty(t, w.held("r"), "what is still free is not known before all pods are")
		assert.False(t, w.c.Ready.IsOpen())
		w.known.Open()
		require.NoError(t, w.c.Ready.Wait(w.ctx()))
		assert.Equal(t, []string{"a@n1"}, w.held("r"))
	})
}

// TestNothingNewBeforeDecisionsMayBeMade checks that what waits goes on waiting
// until the pods that an earlier server may have bound have been seen.
func TestNothingNewBeforeDecisionsMayBeMade(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("held", time.Minute, slot("a", "n1", 1000)))
		w.stop()
		w.create(newReservation("new", time.Minute, slot("a", "n1", 1000)))
		w.newServer()
		open := informer.NewLatch()
		w.c.MayDecide = open.Wait
		w.start()
		w.settle()
		assert.True(t, w.c.Ready.IsOpen())
		assert.Equal(t, []string{"a@n1"}, w.held("held"))
		assert.Empty(t, w.held("new"))
		open.Open()
		w.settle()
		assert.Equal(t, []string{"a@n1"}, w.held("new"))
	})
}
