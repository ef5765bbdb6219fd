package requeue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// What keeps capacity that evictions do not give a pod ends: the pod is tried again, by a nomination that is taken back
// at once. Where evictions would not help yet, or it is nominated for a node, that is left alone.
func TestAwaitEvictions(t *testing.T) {
	type testCase struct {
		cpu, nominated string
		priority       int32
		written        []string
	}
	tests := map[string]testCase{
		"evictions help now":       {"4", "", 10, []string{"p -> none.globalreserve.io", "p -x none.globalreserve.io"}},
		"pods of no lower one":     {"4", "", 0, nil},
		"too large for the node":   {"5", "", 10, nil},
		"its scheduler is at it":   {"4", "b", 10, nil},
		"it was not cleared again": {"4", noNode, 10, []string{"p -> none.globalreserve.io", "p -x none.globalreserve.io"}},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t, "a", "b")
		low, holder, p := w.pod("low", "2", 0), w.pod("holder", "2", 0), w.pod("p", tt.cpu, tt.priority)
		other := w.pod("other", "4", 0)
		w.observeBound(low, "a")
		w.observeBound(other, "b")
		w.reserve(holder, "a", time.Hour)
		p.Nominated = tt.nominated
		w.put(p)
		w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
		advance(time.Minute)
		require.Empty(t, w.api.names())
		w.unreserve(holder, "a")
		advance(time.Minute)
		assert.Equal(t, tt.written, w.api.written())
	})
}

// A nomination that could not be taken back is taken back later.
func TestNominationIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		low, holder, p := w.pod("low", "2", 0), w.pod("holder", "2", 0), w.pod("p", "4", 10)
		w.observeBound(low, "a")
		w.reserve(holder, "a", time.Hour)
		w.put(p)
		failures := 2
		w.api.nomination = func(text string) error {
			if failures--; failures >= 0 && strings.Contains(text, "-x") {
				return apierrors.NewInternalError(errors.New("down"))
			}
			return nil
		}
		w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
		w.unreserve(holder, "a")
		advance(time.Minute)
		once := []string{"p -> none.globalreserve.io", "p -x none.globalreserve.io"}
		assert.Equal(t, slices.Concat(once, once), w.api.written())
	})
}

// Pods that evictions did not help, and do not help now either, are tried again when something is freed, and do not
// wake each other.
func TestRefusedPreemptorsDoNotWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.observeBound(w.pod("low", "2", 0), "a")
		holder := w.pod("holder", "1", 0)
		w.reserve(holder, "a", time.Hour)
		pods := map[string]*cluster.Pod{}
		refuse := func(p *cluster.Pod) { // what filter and /preempt do
			w.refuse(p, "a")
			w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
		}
		w.api.nomination = func(text string) error { // the server's watch, and kube-scheduler
			name, rest, _ := strings.Cut(text, " ")
			p := pods[name].Placement("")
			node, set := strings.CutPrefix(rest, "-> ")
			if set {
				p.Node = node
			}
			assert.False(t, w.ledger.Nominate(&p, time.Now().Add(time.Hour)))
			if !set {
				time.AfterFunc(time.Second, func() { refuse(pods[name]) })
			}
			return nil
		}
		for k := range 50 {
			p := w.pod(fmt.Sprint("p", k), "3500m", 100)
			pods[p.Ref.Name] = p
			w.put(p)
			refuse(p)
		}
		advance(time.Minute)
		w.unreserve(holder, "a")
		advance(time.Minute)
		assert.Len(t, w.api.written(), 100, "once for each")
	})
}

// Filter and preempt refuse a pod in one attempt, and what filter says may be noted after what preempt did.
func TestAwaitEvictionsBesideFilter(t *testing.T) {
	for _, filterFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var nodes []string
			for k := range 40 {
				nodes = append(nodes, fmt.Sprint("n", k))
			}
			w := newWorld(t, nodes...)
			low, holder, p := w.pod("low", "2", 0), w.pod("holder", "2", 0), w.pod("p", "4", 10)
			for _, node := range nodes[:39] {
				w.observeBound(w.pod("on-"+node, "4", 10), node)
			}
			w.observeBound(low, "n39")
			w.reserve(holder, "n39", time.Hour)
			w.put(p)
			filter := func() { w.refuse(p, nodes...) }
			if filterFirst {
				filter()
			}
			w.AwaitEvictions(p, w.ledger.Revision(), nodes)
			if !filterFirst {
				filter()
			}
			advance(time.Minute)
			require.Empty(t, w.api.written())
			w.unreserve(holder, "n39")
			advance(time.Minute)
			assert.Len(t, w.api.written(), 2, filterFirst)
		})
	}
}

// A pod that was promised another attempt gets it, whatever preempt says meanwhile.
func TestPromiseBesidePreempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		for k := range 200 { // more than are woken at once
			p := w.pod(fmt.Sprint("p", k), "4", 10)
			w.put(p)
			w.Wake(p)
			w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
		}
		advance(time.Minute)
		assert.Len(t, w.api.names(), 200)
	})
}
