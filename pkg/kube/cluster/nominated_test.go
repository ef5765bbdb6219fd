package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// fedWorld is a Cache that a test tells of pods and nodes, and the ledger that it tells.
type fedWorld struct {
	*Cache
	t       *testing.T
	decides *ledger.Ledger
}

func newFedWorld(t *testing.T) *fedWorld {
	t.Helper()
	l, o := ledger.New(ledger.Options{}), (&told{}).options()
	o.OnNominated = func(p *Pod) {
		placement := p.Placement(p.Nominated)
		l.Nominate(&placement, time.Now().Add(time.Hour))
	}
	return &fedWorld{New(fake.NewClientset(), l.Observer(), o), t, l}
}

func (w *fedWorld) put(obj any) {
	w.t.Helper()
	if node, ok := obj.(*v1.Node); ok {
		require.NoError(w.t, w.nodeSink().Update(node))
		return
	}
	require.NoError(w.t, w.podSink().Update(obj))
}

func (w *fedWorld) remove(pod *v1.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.podSink().Delete(pod))
}

// What pods leave that make way for a nominated pod is kept for it until it is nominated for another node or for none,
// bound, gone, or some minutes have passed. A server that begins with such a pod knows that, too.
func TestNominated(t *testing.T) {
	ofPriority := func(priority int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &priority } }
	nominated := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.NominatedNodeName = node } }
	high := func(version int, options ...func(*v1.Pod)) *v1.Pod {
		return aPod("high", version, append(options, asking("4"), ofPriority(10))...)
	}
	type testCase struct {
		atStart bool
		end     func(w *fedWorld)
	}
	tests := map[string]testCase{
		"nominated for none":         {end: func(w *fedWorld) { w.put(high(11)) }},
		"nominated for another node": {end: func(w *fedWorld) { w.put(high(11, nominated("n2"))) }},
		"bound elsewhere":            {end: func(w *fedWorld) { w.put(high(11, on("n2"))) }},
		"being deleted":              {end: func(w *fedWorld) { w.put(high(11, nominated("n1"), terminating)) }},
		"gone":                       {end: func(w *fedWorld) { w.remove(high(11)) }},
		"for too long": {end: func(w *fedWorld) {
			pass(time.Hour)
			w.decides.Expire(time.Now())
		}},
		"a server begins": {atStart: true, end: func(w *fedWorld) { w.put(high(11)) }},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newFedWorld(t)
		low := aPod("low", 5, on("n1"), asking("3"))
		w.put(aNode("n1", 1, "4"))
		w.put(aNode("n2", 1, "4"))
		if tt.atStart {
			require.NoError(t, w.podSink().Replace([]any{high(10, nominated("n1")), low}, "10"))
		} else {
			w.put(low)
			w.put(high(10, nominated("n1")))
		}
		fits := func(priority int32) bool {
			info, err := w.Reader().NewPod(aPod("another", 1, asking("1"), ofPriority(priority)))
			require.NoError(t, err)
			p := info.Placement("n1")
			return w.decides.AppendFit(nil, &p, []string{"n1"})[0].Reason == ledger.Fits
		}
		assert.False(t, fits(9))
		assert.True(t, fits(10))
		w.put(high(10, nominated("n1"))) // says nothing new
		w.remove(low)
		assert.False(t, fits(9), "what it left is kept")
		tt.end(w)
		assert.True(t, fits(9))
	})
}

// A nomination for a node that a pod fits, as it is written before each bind, keeps nothing, and neither does one that
// nobody can make way for.
func TestNominatedInVain(t *testing.T) {
	for name, cpu := range map[string]string{"it fits": "1", "too large": "5"} {
		t.Run(name, func(t *testing.T) {
			w := newFedWorld(t)
			w.put(aNode("n1", 1, "4"))
			w.put(aPod("low", 5, on("n1"), asking("2")))
			w.put(aPod("p", 6, asking(cpu), func(p *v1.Pod) {
				p.Spec.Priority, p.Status.NominatedNodeName = new(int32(10)), "n1"
			}))
			p := aPod("another", 1, asking("2"))
			info, err := w.Reader().NewPod(p)
			require.NoError(t, err)
			placement := info.Placement("n1")
			assert.Equal(t, ledger.Fits, w.decides.AppendFit(nil, &placement, []string{"n1"})[0].Reason)
		})
	}
}
