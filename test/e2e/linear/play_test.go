//go:build chaos

package linear

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tally counts what happened in histories.
type tally struct {
	mu        sync.Mutex // guards what follows
	done      int
	undecided int
	counts    map[string]int
	illegal   []string
}

func (t *tally) add(h *history, verdict porcupine.CheckResult, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	switch verdict {
	case porcupine.Illegal:
		t.illegal = append(t.illegal, text)
	case porcupine.Unknown:
		t.undecided++
	}
	for _, e := range h.events {
		t.counts[strings.TrimSpace(fmt.Sprintf("%s %s", e.request.verb, e.answer.result))]++
	}
}

// mostUndecided is how many of some histories may be too long to be judged in time: on a slow machine many requests are
// open, and each doubles the orders to look at.
func mostUndecided(histories int) int { return histories / 5 }

// isOver reports whether no more histories need to be judged.
func (t *tally) isOver(histories int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.illegal) > 0 || t.undecided > mostUndecided(histories)
}

// play runs histories, several at a time, each on nodes of its own. The first has the number given.
func play(t *testing.T, f *fleet, seed uint64, first, count, atOnce int) []*history {
	t.Helper()
	nodes := f.AddNodes(count*nodesOf, nodeTemplate)
	f.awaitKnown(nodes)
	histories, numbers := make([]*history, count), make(chan int)
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for i := range numbers {
				h, plans := newHistory(f, seed, first+i, nodes[i*nodesOf:(i+1)*nodesOf])
				assert.NoError(t, h.run(t.Context(), plans), h.text())
				histories[i] = h
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	require.False(t, t.Failed(), "a client got an answer that nobody may get")
	return histories
}

// judge looks at histories until one is found that no order explains. That is done when nothing else needs the
// processors.
func judge(histories []*history) *tally {
	sum := &tally{counts: map[string]int{}}
	var running sync.WaitGroup
	next := make(chan *history)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for h := range next {
				verdict, text := h.check()
				sum.add(h, verdict, text)
			}
		})
	}
	for _, h := range histories {
		if sum.isOver(len(histories)) {
			break
		}
		next <- h
	}
	close(next)
	running.Wait()
	return sum
}
