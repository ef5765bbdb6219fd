package reservations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestLife drives one reservation, "r", through its life on two nodes of 4 CPUs.
func TestLife(t *testing.T) {
	once := func(name, node string) *v1alpha1.Reservation {
		return newReservation(name, time.Minute, slot("a", node, 3000))
	}
	shared := func(policy v1alpha1.AllocatePolicy) *v1alpha1.Reservation {
		rsv := newReservation("r", time.Minute, slot("a", "n1", 2000))
		rsv.Spec.AllocatePolicy = policy
		return rsv
	}
	gang := func() *v1alpha1.Reservation {
		return newReservation("r", time.Minute, slot("a", "n1", 1000), slot("b", "n2", 1000), slot("c", "n2", 1000))
	}
	charged := func() *v1alpha1.Reservation {
		rsv := gang()
		rsv.Spec.SchedulerName, rsv.Annotations = "batch", map[string]string{v1alpha1.CallerAnnotation: "alice"}
		return rsv
	}
	type testCase struct {
		steps func(w *world)
		want  string   // as shown
		held  []string // where these are not those that are shown as reserved
	}
	cases := map[string]testCase{
		"placed when the gates let it pass": {steps: func(w *world) {
			w.policy.Set(gatestest.Limited("batch"))
			w.create(charged())
			require.Equal(w.t, "Pending NotGranted  0/3", w.shown("r"))
			require.Len(w.t, w.refused, 1)
			require.Nil(w.t, w.refused[0].said, "the ledger was not asked")
			require.Contains(w.t, w.refused[0].why, "may not act for scheduler")
			w.policy.Set(gatestest.Limited("batch", "alice"))
			w.pass(passAgain + passPause)
		}, want: "Available AllSlotsHeld n1 +1 0/3 a@n1=Reserved b@n2=Reserved c@n2=Reserved"},
		"a gate is asked before it is said that no node is large enough": {steps: func(w *world) {
			w.policy.Set(gatestest.Limited("batch"))
			rsv := charged()
			rsv.Spec.Slots[0].NodeName, rsv.Spec.Slots[0].Requests = "", corev1.ResourceList{"cpu": resource.MustParse("1k")}
			w.create(rsv)
		}, want: "Pending NotGranted  0/3"},
		"not given at a restart what a gate has refused": {steps: func(w *world) {
			w.policy.Set(gatestest.Limited("batch"))
			rsv := charged()
			rsv.Labels = map[string]string{convert.MadeByLabel: convert.MadeByReserve}
			rsv.Status.Phase = v1alpha1.ReservationPending
			w.create(rsv)
			require.Equal(w.t, "Pending NotGranted  0/3", w.shown("r"))
			w.stop()
			w.comeBack()
			w.settle()
		}, want: "Pending NotGranted  0/3"},
		"given back what it had, whatever the gates say by now": {steps: func(w *world) {
			w.policy.Set(gatestest.Limited("batch", "alice"))
			w.create(charged())
			w.stop()
			w.policy.Set(gatestest.Limited("batch"))
			w.comeBack()
			w.settle()
		}, want: "Available AllSlotsHeld n1 +1 0/3 a@n1=Reserved b@n2=Reserved c@n2=Reserved"},
		"shared, and expired with a pod on it": {steps: func(w *world) {
			w.create(shared(v1alpha1.AllocateAligned))
			w.bind("p", "n1", 500, slotRef("r", "a"))
			w.pass(61 * time.Second)
		}, want: "Expired Expired n1 1/1 a@n1=Consumed:p"},
		"its node is another one": {steps: func(w *world) {
			w.create(once("r", "n1"))
			w.removeNode("n1")
			w.addNode("n1", func(n *cluster.Node) { n.UID = "new" })
		}, want: "Failed NodeGone n1 0/1 a@n1=Released"},
		"one of its nodes is gone": {steps: func(w *world) {
			w.create(gang())
			w.removeNode("n1")
		}, want: "Failed NodeGone n1 +1 0/3 a@n1=Released b@n2=Released c@n2=Released"},
		"a node of a slot used up does not matter": {steps: func(w *world) {
			w.create(gang())
			w.bind("p", "n1", 1000, slotRef("r", "a"))
			w.removeNode("n1")
		}, want: "Available AllSlotsHeld n1 +1 1/3 a@n1=Consumed:p b@n2=Reserved c@n2=Reserved"},
		"another one's pod takes less than was kept for it": {steps: func(w *world) {
			w.create(once("first", "n1"))
			w.create(once("r", "n1"))
			require.Equal(w.t, "Pending InsufficientResource  0/1", w.shown("r"))
			w.bind("p", "n1", 1000, slotRef("first", "a"))
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"preempted as a whole": {steps: func(w *world) {
			rsv := newReservation("r", time.Minute, slot("a", "n1", 3000), slot("b", "n2", 3000))
			rsv.Spec.Preemptible = true
			w.create(rsv)
			require.True(w.t, w.bindPod(ledger.Placement{
				Pod: podRef("p"), Node: "n1", Request: request(3000), Priority: 10, Preempt: true,
			}))
		}, want: "Preempted Preempted n1 +1 0/2 a@n1=Released b@n2=Released"},
		"its pod is gone": {steps: func(w *world) {
			w.create(forPod(once("r", "n1"), "uid-of-p"))
			w.deletePod("p")
		}, want: "Failed AllSlotsReleased n1 0/1 a@n1=Released"},
		"its pod was gone before": {steps: func(w *world) {
			w.deletePod("p")
			w.create(forPod(once("r", "n1"), "uid-of-p"))
		}, want: "Failed PodGone  0/1"},
		"its pod has capacity in another reservation": {steps: func(w *world) {
			w.create(forPod(once("first", "n1"), ""))
			second := newReservation("r", time.Minute, slot("x", "n2", 1000), slot("y", "n1", 3000))
			second.Spec.Slots[1].Pod = &v1alpha1.PodReference{Name: "p"}
			w.create(second)
		}, want: "Pending PodReservedAlready  0/2"},
		"no ttl": {steps: func(w *world) {
			rsv := once("r", "n1")
			rsv.Spec.TTL = nil
			w.create(rsv)
			status := w.get("r").Status
			require.Equal(w.t, defaultTTL, status.ExpiresAt.Sub(status.AvailableAt.Time))
			require.Equal(w.t, status.AvailableAt.Time, w.ledger.ReservationSlots(testNamespace, "r")[0].AvailableAt)
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"ended by hand": {steps: func(w *world) {
			w.create(once("r", "n1"))
			w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Status.Phase = v1alpha1.ReservationExpired })
		}, want: "Expired Expired n1 0/1 a@n1=Reserved", held: []string{}},
		"a status in disorder is written anew": {steps: func(w *world) {
			w.create(once("r", "n1"))
			w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Status.Slots, rsv.Status.Phase = nil, "" })
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"kept by a finalizer only": {steps: func(w *world) {
			w.create(once("r", "n1"))
			w.change("r", func(rsv *v1alpha1.Reservation) { rsv.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved", held: []string{}},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n1", "n2")
		tc.steps(w)
		w.settle()
		w.assertShown("r", tc.want, tc.held)
	})
}

func TestConditionsAndFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(newReservation("r", 10*time.Second, slot("a", "n1", 1000)))
		conditions := func() map[string]metav1.Condition {
			m := map[string]metav1.Condition{}
			for _, c := range w.get("r").Status.Conditions {
				m[c.Type] = c
			}
			return m
		}
		c := conditions()
		assert.Equal(t, metav1.ConditionFalse, c[v1alpha1.ConditionAvailable].Status)
		assert.Contains(t, c[v1alpha1.ConditionAvailable].Message, `node "n1" is not in the ledger`)
		assert.Equal(t, metav1.ConditionFalse, c[v1alpha1.ConditionFinished].Status)
		assert.EqualValues(t, 1, c[v1alpha1.ConditionAvailable].ObservedGeneration)

		w.pass(time.Minute)
		w.addNode("n1")
		w.settle()
		c = conditions()
		assert.Equal(t, metav1.ConditionTrue, c[v1alpha1.ConditionAvailable].Status)
		assert.WithinDuration(t, time.Now(), c[v1alpha1.ConditionAvailable].LastTransitionTime.Time, 2*time.Second)

		w.pass(12 * time.Second)
		c = conditions()
		assert.Equal(t, metav1.ConditionFalse, c[v1alpha1.ConditionAvailable].Status)
		assert.Equal(t, metav1.ConditionTrue, c[v1alpha1.ConditionFinished].Status)
		assert.Equal(t, "Expired", c[v1alpha1.ConditionFinished].Reason)
		assert.Equal(t, "the ttl is over; pods used 0 of 1 slots", c[v1alpha1.ConditionFinished].Message)

		w.pass(finishedTTL - 5*time.Second)
		ended := w.get("r")
		require.NotNil(t, ended)
		w.pass(5 * time.Second)
		assert.Nil(t, w.get("r"), "ended objects go")
		deleted := 0
		for _, action := range w.client.Actions() {
			if d, ok := action.(clienttesting.DeleteAction); ok {
				deleted++
				required := d.GetDeleteOptions().Preconditions
				assert.Equal(t, ended.UID, *required.UID)
				assert.Equal(t, ended.ResourceVersion, *required.ResourceVersion, "an object that was changed since stays")
			}
		}
		assert.Equal(t, 1, deleted)
	})
}

func TestConsumersAreMatchedWhileTheyCan(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		rsv := newReservation("r", time.Minute, slot("a", "n1", 1000))
		rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
		w.create(rsv)
		pod := podInfo("p")
		assert.Equal(t, []ledger.SlotRef{slotRef("r", "a")}, w.matcher.Candidates(pod))
		w.pass(62 * time.Second)
		w.settle()
		assert.Empty(t, w.matcher.Candidates(pod))
	})
}

// noticed is how soon it has to be noticed that the definition came or went.
const noticed = 30 * time.Second

// TestDefinitionComesAndGoes installs the definition, uninstalls it, with which its objects go, and installs it again.
func TestDefinitionComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(t)
		w.served.Store(false)
		w.start()
		without := func() {
			assert.False(t, w.c.Serving(), "nobody may write objects")
			assert.True(t, w.c.Ready.IsOpen(), "the server works without reservations")
			assert.False(t, w.c.Known(testNamespace, "r"))
			assert.Empty(t, w.held("r"))
		}
		install := func(is bool) {
			w.served.Store(is)
			w.pass(noticed)
		}
		without()
		install(true)
		assert.True(t, w.c.Serving())
		w.addNode("n1")
		w.create(newReservation("r", time.Hour, slot("a", "n1", 1000)))
		assert.Equal(t, "Available AllSlotsHeld n1 0/1 a@n1=Reserved", w.shown("r"))
		require.Equal(t, []string{"a@n1"}, w.held("r"))
		install(false)
		without()
		require.NoError(t, w.client.GlobalreserveV1alpha1().Reservations(testNamespace).
			Delete(w.ctx(), "r", metav1.DeleteOptions{}))
		install(true)
		assert.True(t, w.c.Serving())
		w.create(newReservation("new", time.Hour, slot("a", "n1", 1000)))
		assert.Equal(t, []string{"a@n1"}, w.held("new"))
		assert.Empty(t, w.held("r"))
	})
}

// A reservation that no node has capacity for is not said to need one where a limit keeps it from all nodes.
func TestLimitComesBeforeNewNodes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		limit := func(limits ledger.Limits) {
			w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"ns": &limits})
		}
		cpu := func(value int64) []resources.Amount { return []resources.Amount{{Column: resources.CPU, Value: value}} }
		limit(ledger.Limits{Use: cpu(9_999)})
		w.create(newReservation("r", time.Minute, slot("a", "", 5000), slot("b", "", 5000)))
		assert.Contains(t, w.shown("r"), "Pending QuotaExceeded")
		assert.Contains(t, w.refused[0].said.Message(), "slot ns/r/b 5 CPU, 4.999 of 9.999 left")
		limit(ledger.Limits{Keep: cpu(9_999)})
		w.c.Retry()
		w.settle()
		assert.Contains(t, w.shown("r"), "Pending ReservedLimit")
		limit(ledger.Limits{Slots: ptr.To[int64](1)})
		w.c.Retry()
		w.settle()
		assert.Contains(t, w.shown("r"), "Pending SlotLimit")
		assert.Contains(t, w.refused[2].said.Message(), "so there is none for slot ns/r/b")
		assert.Equal(t, []int64{1, 1, 0}, []int64{
			w.refused[2].said.Requested, w.refused[2].said.Limit, w.refused[2].said.Free,
		})
		require.Len(t, w.c.Pending(), 1)
		assert.False(t, w.c.Pending()[0].NoNodeFits)
		limit(ledger.Limits{Use: cpu(10_000), Keep: cpu(10_000), Slots: ptr.To[int64](2)})
		w.c.Retry()
		w.settle()
		assert.Contains(t, w.shown("r"), "Pending NoNodeFits")
		assert.True(t, w.c.Pending()[0].NoNodeFits)
	})
}

// A list of what waits shows what it asks for and the most there is of it.
func TestPendingTellsWhatIsLacking(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNode("n2")
		w.ledger.ObservePod(ledger.PodObservation{Pod: podRef("a"), Node: "n1", Request: request(1000)})
		w.ledger.ObservePod(ledger.PodObservation{Pod: podRef("b"), Node: "n2", Request: request(2000)})
		w.create(newReservation("anywhere", time.Minute, slot("small", "", 500), slot("large", "", 3500)))
		w.create(newReservation("there", time.Minute, slot("a", "n2", 2500)))
		pending := w.c.Pending()
		require.Len(t, pending, 2)
		anywhere, there := pending[0], pending[1]
		assert.Equal(t, []string{"anywhere", "NoNodeFits", "large"},
			[]string{anywhere.Reservation.Name, anywhere.Reason, anywhere.Slot})
		assert.Contains(t, anywhere.Lacks, ledger.Lack{Resource: "cpu", Requested: 3500, Largest: 3000, Node: "n1"})
		assert.Equal(t, []string{"there", "InsufficientResource", "a"},
			[]string{there.Reservation.Name, there.Reason, there.Slot})
		assert.Equal(t, []ledger.Lack{{Resource: "cpu", Requested: 2500, Largest: 2000, Node: "n2"}}, there.Lacks)

		require.Len(t, w.refused, 2)
		for _, r := range w.refused {
			require.NotNil(t, r.said, r.slot)
			switch r.slot {
			case "ns/anywhere/large":
				assert.Equal(t, []any{"n1", int64(3500), int64(3000)}, []any{r.said.Node, r.said.Requested, r.said.Free},
					"where it lacks least")
				assert.Contains(t, r.why, "no node of 2 fits")
			default:
				assert.Equal(t, []any{"ns/there/a", "n2", int64(2500), int64(2000)},
					[]any{r.slot, r.said.Node, r.said.Requested, r.said.Free})
			}
			assert.NotEmpty(t, r.said.Holders)
		}
		w.pass(3 * passAgain)
		assert.Len(t, w.refused, 2, "it is told once, however often it is tried")

		w.ledger.RemovePod(podRef("a"), 1)
		w.settle()
		pending = w.c.Pending()
		require.Len(t, pending, 1, "the other one is available")
		assert.Equal(t, "there", pending[0].Reservation.Name)
	})
}
