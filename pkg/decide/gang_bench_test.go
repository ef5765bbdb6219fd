package decide

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkGang starts the binds of a gang of 1,000 on 5,000 nodes: the first, which finds capacity for all, and one of
// the others. A pod without a gang is the measure.
func BenchmarkGang(b *testing.B) {
	const size = 1000
	w := newGangWorld(b, 5000, 4)
	single := w.pod("", "single", 0, withoutGang)
	placement := w.o.Question.For(single, "n4999")
	pods := w.gang("a", size, size, nil)
	first := w.o.Question.For(pods[0], "n0")
	b.Run("single", func(b *testing.B) {
		for b.Loop() {
			_, err := w.startBind(single, &placement, nowhere)
			require.NoError(b, err)
			w.o.Ledger.BindFailed(single.Ref, "n4999")
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			_, err := w.startBind(pods[0], &first, nowhere)
			require.NoError(b, err)
			b.StopTimer()
			w.o.Ledger.BindFailed(pods[0].Ref, "n0")
			w.forget(w.of[pods[0].Gang.Key("ns")])
			b.StartTimer()
		}
	})
	for name, node := range map[string]func(k int) string{
		"other/in place":  func(k int) string { home, _ := w.ledger.HomeOf(pods[k].Ref); return home },
		"other/elsewhere": func(k int) string { return fmt.Sprintf("n%d", 4000+k) },
		"other/in the place of another": func(k int) string {
			home, _ := w.ledger.HomeOf(pods[(k+500)%size].Ref)
			return home
		},
	} {
		b.Run(name, func(b *testing.B) {
			k := size / 2
			for b.Loop() {
				b.StopTimer()
				if k == size/2 {
					w.undo(pods)
					_, err := w.startBind(pods[0], &first, nowhere)
					require.NoError(b, err)
					k = 1
				}
				at := w.o.Question.For(pods[k], node(k))
				b.StartTimer()
				_, err := w.startBind(pods[k], &at, nowhere)
				require.NoError(b, err)
				k++
			}
		})
		w.undo(pods)
	}
}

// BenchmarkGangWithReservation starts the first bind of a gang of 1,000 in a reservation of 1,000 slots on 250 nodes.
func BenchmarkGangWithReservation(b *testing.B) {
	const size = 1000
	w := newGangWorld(b, 5000, 4)
	slots := make([]keptOn, size)
	for k := range slots {
		slots[k] = keptOn{fmt.Sprintf("n%d", k/4), 1}
	}
	w.reserve("a", slots...)
	pods := w.gang("a", size, size, nil)
	for b.Loop() {
		w.begin(pods[0], "n0")
		b.StopTimer()
		w.o.Ledger.BindFailed(pods[0].Ref, "n0")
		w.forget(w.of[pods[0].Gang.Key("ns")])
		b.StartTimer()
	}
}
