package reservations

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// gang is a reservation of some slots of 1 CPU.
func gang(name string, slots int) *v1alpha1.Reservation {
	rsv := newReservation(name, 0)
	for i := range slots {
		rsv.Spec.Slots = append(rsv.Spec.Slots, slot(fmt.Sprint("s", i), "", 1000))
	}
	return rsv
}

// nowOf is what the controller's clock shows.
func (w *world) nowOf() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// until returns how long it takes by the controller's clock until something is so.
func (w *world) until(what func() bool) time.Duration {
	begun := w.nowOf()
	for range 10_000 {
		if w.pass(passPause / 10); what() {
			return w.nowOf().Sub(begun)
		}
	}
	require.Fail(w.t, "it never is")
	return 0
}

// Many large reservations of one namespace, which fit nowhere, do not keep that of another one waiting, and each of
// them is tried.
func TestNamespacesTakeTurnsInAPass(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const many = 40
		for i := range many { // each attempt takes some 120 ms: 5 slots, of which the last fits nowhere
			w.create(gang(fmt.Sprint("gang-", i), 5))
		}
		w.cost.Store(int64(20 * time.Millisecond))
		w.c.Retry()
		one := newReservation("one", 0, slot("a", "", 1000))
		one.Namespace = "other"
		_, err := w.client.GlobalreserveV1alpha1().Reservations("other").Create(w.ctx(), one, metav1.CreateOptions{})
		require.NoError(t, err)
		took := w.until(func() bool { return len(w.ledger.ReservationSlots("other", "one")) == 1 })
		assert.Less(t, took, 4*time.Second, "not for the %d attempts of the namespace with many", many)

		w.c.mu.Lock()
		w.refused = nil
		for _, r := range w.c.records {
			r.refusedFor = ""
		}
		w.c.mu.Unlock()
		w.ledger.ReleaseSlots("other", "one", "a")
		w.until(func() bool {
			w.c.mu.Lock()
			defer w.c.mu.Unlock()
			return len(w.refused) == many
		})
	})
}

// at creates a reservation of another namespace, of a priority.
func (w *world) at(namespace string, priority int32, rsv *v1alpha1.Reservation) {
	w.t.Helper()
	rsv.Namespace, rsv.UID, rsv.Spec.Priority = namespace, types.UID(namespace+rsv.Name), &priority
	w.create(rsv)
}

// keeps counts the slots that are kept for the reservations of a namespace whose names begin so.
func (w *world) keeps(namespace, prefix string) (count int) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for name := range w.c.records {
		if name.Namespace == namespace && strings.HasPrefix(name.Name, prefix) {
			count += len(w.ledger.ReservationSlots(namespace, name.Name))
		}
	}
	return count
}

// A namespace has many that fit nowhere and take long to try: 60, of 25 ms each. Beside it, whatever was freed goes to
// the highest priority and then to the oldest, and of the namespace none waits for longer than a round.
func TestOrderBesideMany(t *testing.T) {
	one := func(name string) *v1alpha1.Reservation { return newReservation(name, 0, slot("a", "", 1000)) }
	tests := map[string]func(t *testing.T, w *world){
		"a newcomer of the namespace": func(t *testing.T, w *world) {
			w.pass(10 * time.Minute)
			w.at("many", 10, one("new"))
			w.until(func() bool { return w.keeps("many", "new") == 1 })
		},
		"a lower priority of the namespace": func(t *testing.T, w *world) {
			w.at("many", 0, one("new"))
			w.until(func() bool { return w.keeps("many", "new") == 1 })
		},
		"newcomers of the namespace": func(t *testing.T, w *world) {
			require.True(t, w.bind("p", "n1", 4000))
			w.cost.Store(0)
			w.at("team", 10, gang("large", 4))
			for i := range 100 {
				if w.at("team", 0, one(fmt.Sprint("new-", i))); i == 50 {
					w.deletePod("p")
				}
			}
			assert.Equal(t, 4, w.keeps("team", "large"))
		},
		"the oldest": func(t *testing.T, w *world) {
			require.True(t, w.bind("p", "n1", 4000))
			w.at("victim", 10, one("old"))
			w.pass(5 * time.Second)
			for i := range 60 {
				w.at("many", 10, one(fmt.Sprint("young-", i)))
			}
			w.pass(20 * time.Second)
			w.deletePod("p")
			w.until(func() bool { return w.keeps("many", "young-") == 3 })
			assert.Equal(t, 1, w.keeps("victim", "old"))
		},
		"the highest priority": func(t *testing.T, w *world) {
			require.True(t, w.bind("p", "n1", 4000))
			w.cost.Store(int64(200 * time.Millisecond))
			w.at("high", 1000, gang("large", 4))
			w.pass(time.Minute)
			w.at("low", 0, one("small"))
			w.pass(time.Minute)
			w.deletePod("p")
			w.until(func() bool { return w.keeps("high", "large") == 4 })
		},
	}
	bubble.Each(t, tests, func(t *testing.T, test func(t *testing.T, w *world)) {
		w := newWorld(t, "n1")
		for i := range 60 {
			w.at("many", 10, gang(fmt.Sprint("gang-", i), 5))
		}
		w.cost.Store(int64(4 * time.Millisecond))
		w.c.Retry()
		test(t, w)
	})
}

// Nothing is tried again before something was freed, except where no event says so.
func TestTriedOnceForWhatIsFreed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 10 {
			w.create(gang(fmt.Sprint("gang-", i), 5))
		}
		w.cost.Store(int64(10 * time.Millisecond)) // an attempt takes more than a turn
		w.pass(passAgain)
		tries := func(d time.Duration) int {
			before := w.looks.Load()
			w.pass(d)
			return int(w.looks.Load() - before)
		}
		w.c.Retry()
		assert.Greater(t, tries(4*time.Second), 10*5, "each of them")
		w.c.Retry()
		tries(4 * time.Second)
		assert.Less(t, tries(4*time.Second), 10)
		assert.Greater(t, tries(passAgain), 10*5)

		w.cost.Store(0)
		w.c.Retry()
		tries(passAgain / 2)
		before := w.looks.Load()
		w.change("gang-0", func(rsv *v1alpha1.Reservation) { rsv.Annotations = map[string]string{"a": "b"} })
		w.create(gang("gang-10", 5))
		created := int(w.looks.Load() - before)
		assert.Positive(t, created)
		w.change("gang-1", func(rsv *v1alpha1.Reservation) { rsv.Generation, rsv.Spec.Priority = 2, new(int32) })
		assert.Greater(t, int(w.looks.Load()-before), created+5, "what changed is tried")
		assert.Less(t, int(w.looks.Load()-before), 3*10, "of these alone")
	})
}

// What no event reports is found in time, whatever else is tried meanwhile.
func TestTriedAgainInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(gang("gang-0", 5))
		w.pass(passAgain / 2)
		w.create(gang("gang-1", 5))
		before := w.looks.Load()
		w.pass(passAgain/2 + passPause)
		assert.Greater(t, w.looks.Load(), before+5)
	})
}

// A reservation for a pod that is gone ends, whatever the limits are.
func TestLimitHidesNoPodThatIsGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		require.True(t, w.bind("p", "n1", 1000))
		w.deletePod("p")
		w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"ns": {Slots: new(int64)}})
		w.create(forPod(newReservation("g", 0, slot("a", "n1", 1000)), "uid-of-p"))
		assert.Contains(t, w.shown("g"), "Failed PodGone")
	})
}

// What a limit forbids needs no look at the nodes, and an attempt ends at some time.
func TestAttemptsAreShort(t *testing.T) {
	for want, test := range map[string]struct {
		slots int64
		cost  time.Duration
	}{
		"Pending SlotLimit": {3, time.Hour}, "Pending NotGranted": {4, 2 * time.Second},
		"Available AllSlotsHeld": {4, time.Second},
	} {
		t.Run(want, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"ns": {Slots: &test.slots}})
				w.cost.Store(int64(test.cost))
				w.create(gang("g", 4))
				assert.Contains(t, w.shown("g"), want)
			})
		})
	}
}
