package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

// keptOn is the size of one slot of a reservation, and its node.
type keptOn struct {
	node string
	cpus int64
}

// reserve makes a reservation for a gang that is available: with the slots s-0, s-1 ...
func (w *gangWorld) reserve(gang string, slots ...keptOn) {
	w.t.Helper()
	w.reserveAs(gang, ledger.Once, slots...)
}

func (w *gangWorld) reserveAs(gang string, policy ledger.AllocatePolicy, slots ...keptOn) {
	w.t.Helper()
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: gang + "-capacity", UID: "u-capacity"},
		Spec:       v1alpha1.ReservationSpec{Consumers: &v1alpha1.ConsumerSpec{Gang: &v1alpha1.GangReference{Name: gang}}},
	}
	var plan ledger.Plan
	for k, s := range slots {
		name := fmt.Sprintf("s-%d", k)
		rsv.Spec.Slots = append(rsv.Spec.Slots, v1alpha1.Slot{Name: name})
		plan.Slots = append(plan.Slots, ledger.Slot{
			Ref: ledger.SlotRef{Namespace: "ns", Name: rsv.Name, Slot: name}, UID: rsv.UID, Node: s.node, Policy: policy,
			Request: placementtest.Request(1000 * s.cpus),
		})
	}
	result := w.ledger.Reserve(plan, w.o.Ledger.Clock.Now())
	require.Empty(w.t, result.Rejections)
	require.NoError(w.t, w.o.Question.Matcher.Set(rsv))
}

// fill takes all that is free with single pods of one CPU.
func (w *gangWorld) fill() {
	w.t.Helper()
	count := 0
	for node, ok := range map[string]bool{"n0": true, "n1": true, "n2": true} {
		for ok { // until the node is full
			pod := w.pod("", fmt.Sprintf("filler-%d", count), 0, withoutGang)
			ok = w.bind(pod, node) == nil
			count++
		}
	}
}

func ofCPUs(cpus int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(fmt.Sprint(cpus)) }
}

// On a cluster that is full otherwise a gang starts in the capacity that was reserved for it, whatever node each member
// is bound to. The next server keeps for the rest there, too.
func TestGangStartsInItsReservation(t *testing.T) {
	gangTest(t, 3, 2, func(w *gangWorld) {
		w.reserve("a", keptOn{"n0", 1}, keptOn{"n1", 1}, keptOn{"n2", 1})
		w.fill()
		single := w.pod("", "single", 0, withoutGang)
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)

		pods := w.gang("a", 3, 3, nil)
		assert.Equal(t, ledger.Fits, w.advise(pods[0]))
		require.NoError(t, w.bind(pods[2], "n1"))
		assert.Equal(t, 2, w.kept())
		w.succeed()
		assert.Equal(t, 2, w.kept())
		w.refusedAs(w.bind(single, "n0"), ledger.InsufficientResource)
		home, _ := w.ledger.HomeOf(pods[0].Ref)
		other := map[string]string{"n0": "n2", "n2": "n0"}[home]
		require.NoError(t, w.bind(pods[0], other), "the place of the other member")
		require.NoError(t, w.bind(pods[1], home))
		assert.Zero(t, w.kept())
		assert.Empty(t, w.ledger.ReservationSlots("ns", "a-capacity"), "all are used up")
		w.watch()
		assert.Empty(t, w.of)
	})
}

// A reservation for a part of a gang: the rest goes where there is free capacity, and starts only if there is enough.
func TestGangStartsBesideItsReservation(t *testing.T) {
	gangTest(t, 3, 2, func(w *gangWorld) {
		w.reserve("a", keptOn{"n0", 1}, keptOn{"n1", 1})
		for k, node := range []string{"n0", "n1", "n2", "n2"} {
			require.NoError(t, w.bind(w.pod("", fmt.Sprintf("filler-%d", k), 0, withoutGang), node))
		}
		pods := w.gang("a", 3, 3, nil)
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		assert.Equal(t, ledger.GangUnplaced, w.advise(pods[0]), "filter need not offer what the bind refuses")
		w.resize("n3", 1)
		w.watch()
		assert.Equal(t, []string{"a-0"}, w.woken())
		require.NoError(t, w.bind(pods[0], "n0"))
		assert.Equal(t, 2, w.kept())
		require.NoError(t, w.bind(pods[1], "n3"))
		require.NoError(t, w.bind(pods[2], "n1"))
	})
}

// Each member is kept for in a slot of its size, also where a small one is bound first and comes to a large slot first.
func TestGangOfSizesStartsInItsReservation(t *testing.T) {
	type testCase struct {
		small string // the node of the small one
		slots []keptOn
	}
	eachGang(t, 3, 4, map[string]testCase{
		"large first": {"n0", []keptOn{{"n0", 3}, {"n0", 1}, {"n1", 3}}},
		"small first": {"n0", []keptOn{{"n0", 1}, {"n0", 3}, {"n1", 3}}},
		"apart":       {"n2", []keptOn{{"n0", 3}, {"n1", 3}, {"n2", 1}}},
	}, func(t *testing.T, w *gangWorld, tc testCase) {
		w.reserve("a", tc.slots...)
		w.fill()
		small := w.pod("a", "a-small", 3, ofCPUs(1))
		w.pod("a", "a-large-0", 3, ofCPUs(3))
		w.pod("a", "a-large-1", 3, ofCPUs(3))
		require.NoError(t, w.bind(small, tc.small))
		assert.Equal(t, 2, w.kept())
	})
}

// A slot on a node that does not suit a member is none for it.
func TestGangInReservedSlotsThatSuit(t *testing.T) {
	gangTest(t, 3, 1, func(w *gangWorld) {
		w.label("n1", "ssd")
		w.reserve("a", keptOn{"n0", 1}, keptOn{"n1", 1}, keptOn{"n2", 1})
		picky := w.pod("a", "a-picky", 2, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
		plain := w.pod("a", "a-plain", 2, nil)
		w.refusedAs(w.bind(plain, "n1"), ledger.GangUnplaced)
		require.NoError(t, w.bind(plain, "n0"))
		home, _ := w.ledger.HomeOf(picky.Ref)
		assert.Equal(t, "n1", home)
	})
}

// Slots of a reservation that are each for one member, as /reserve makes them, last as long as the gang needs them, and
// not only until the deadline of the reservation. Members use them up.
func TestGangOutlastsItsReservation(t *testing.T) {
	cases := map[string]bool{"one server": false, "another server decides": true}
	eachGang(t, 2, 2, cases, func(t *testing.T, w *gangWorld, another bool) {
		pods := w.gang("a", 4, 4, nil)
		ends := w.o.Ledger.Clock.Now().Add(10 * time.Second)
		var plan ledger.Plan
		for k, pod := range pods {
			plan.Slots = append(plan.Slots, ledger.Slot{
				Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: pod.Ref.Name}, UID: "u-r", Node: fmt.Sprintf("n%d", k/2),
				Policy: ledger.Once, Request: pod.Request, Pod: pod.Ref, Deadline: ends,
			})
		}
		require.Empty(t, w.ledger.Reserve(plan, w.o.Ledger.Clock.Now()).Rejections)
		require.NoError(t, w.bind(pods[0], "n0"))
		require.NoError(t, w.bind(pods[1], "n0"))
		assert.Len(t, w.ledger.ReservationSlots("ns", "r"), 2)
		if another {
			w.succeed()
		}
		<-time.After(11 * time.Second)
		w.refusedAs(w.bind(w.pod("", "single", 0, withoutGang), "n1"), ledger.InsufficientResource)
		assert.Empty(t, w.ledger.ReservationSlots("ns", "r"), "its time is over")
		require.NoError(t, w.bind(pods[2], "n1"))
		require.NoError(t, w.bind(pods[3], "n1"))
		w.watch()
		assert.Zero(t, w.kept())
		assert.Empty(t, w.of)
	})
}
