package autoscaling

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// nodesWorld is a Protector between a ledger with two nodes and an API server that is a fake.
type nodesWorld struct {
	*testing.T
	client  *fake.Clientset
	ledger  *ledger.Ledger
	p       *Protector
	now     time.Time
	policy  *policy.Store
	metrics *metrics.Metrics
	others  []*cluster.Node // that only the watch knows
}

func newNodesWorld(t *testing.T) *nodesWorld {
	t.Helper()
	w := &nodesWorld{T: t, ledger: ledger.New(ledger.Options{}), now: time.Now(), metrics: metrics.New()}
	w.policy = policy.NewStore(policy.Default(), time.Minute)
	w.client = fake.NewClientset()
	for _, name := range []string{"a", "b"} {
		_, err := w.client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{"other": "x"},
		}}, metav1.CreateOptions{FieldManager: "kubelet"})
		require.NoError(t, err)
	}
	placementtest.Nodes(w.ledger, 4000, "a", "b")
	w.restart()
	return w
}

// restart is another server.
func (w *nodesWorld) restart() {
	log, _ := logtest.NewNullLogger()
	w.p = NewProtector(Options{
		Ledger: gatestest.Ledger(w.ledger), Client: w.client, Nodes: w.seen(), Policy: w.policy, Metrics: w.metrics, Log: log,
	})
}

// failed is how many writes have failed.
func (w *nodesWorld) failed() int {
	return metricstest.Counted(w, w.metrics, "autoscaling_writes_total", "Node", "failed")
}

// switchOff has the policy protect no nodes any more.
func (w *nodesWorld) switchOff() {
	p := policy.Default()
	p.Autoscaling.ProtectNodes = false
	w.policy.Set(p)
}

// seen are the nodes as the watch brings them.
func (w *nodesWorld) seen() *cluster.Nodes {
	seen := cluster.NewNodes()
	nodes, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		seen.Put(&cluster.Node{Name: n.Name, UID: n.UID, Annotations: n.Annotations})
	}
	for _, n := range w.others {
		seen.Put(n)
	}
	return seen
}

func (w *nodesWorld) reserve(node string) {
	w.Helper()
	result := w.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r-" + node, Slot: "s"}, Node: node,
		Request: placementtest.Request(1000),
	}}, Mode: ledger.AllOrNothing}, w.now)
	require.Empty(w, result.Rejections)
}

func (w *nodesWorld) release(node string) { w.ledger.ReleaseSlots("ns", "r-"+node) }

// after lets time pass in steps, and what is due be written.
func (w *nodesWorld) after(d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(lookEvery) {
		w.p.Nodes = w.seen()
		for _, c := range w.p.look(w.now) {
			w.p.write(w.Context(), c)
		}
	}
}

// has fails unless a node has just these annotations of autoscalers, and what it had besides.
func (w *nodesWorld) has(node string, want map[string]string) {
	w.Helper()
	got, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	require.NoError(w, err)
	want = maps.Clone(want)
	want["other"] = "x"
	assert.Equal(w, want, got.Annotations)
}

// annotate does what kubectl annotate does.
func (w *nodesWorld) annotate(node, key, value string) {
	w.Helper()
	got, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	require.NoError(w, err)
	got.Annotations[key] = value
	_, err = w.client.CoreV1().Nodes().Update(w.Context(), got, metav1.UpdateOptions{FieldManager: "kubectl-annotate"})
	require.NoError(w, err)
}

var (
	bare = map[string]string{}
	all  = map[string]string{
		v1alpha1.KeepsCapacityAnnotation: "true", v1alpha1.ScaleDownDisabledAnnotation: "true",
		v1alpha1.DoNotDisruptAnnotation: "true",
	}
)

// Soon, but not at once: gangs are bound within moments.
const soon, late = protectAfter + 2*lookEvery, releaseAfter + 2*lookEvery

func TestNodesAreProtectedWhileSomethingIsKept(t *testing.T) {
	w := newNodesWorld(t)
	w.after(soon)
	w.has("a", bare)
	w.reserve("a")
	w.after(protectAfter - lookEvery)
	w.has("a", bare)
	w.after(soon)
	w.has("a", all)
	w.has("b", bare)
	w.release("a")
	w.after(releaseAfter - lookEvery)
	w.has("a", all)
	w.after(late)
	w.has("a", bare)
}

func TestAShortWhileIsNotWritten(t *testing.T) {
	w := newNodesWorld(t)
	for range 5 {
		w.reserve("a")
		w.after(protectAfter - lookEvery)
		w.release("a")
		w.after(lookEvery)
	}
	for _, action := range w.client.Actions() {
		assert.NotEqual(t, "patch", action.GetVerb())
	}
}

// A pod that uses all of the slot is there for autoscalers to see.
func TestUsedSlotsKeepNothing(t *testing.T) {
	w := newNodesWorld(t)
	w.reserve("a")
	assert.Equal(t, map[string]struct{}{"a": {}}, w.ledger.Keeping())
	pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "p"}
	w.ledger.ObservePod(ledger.PodObservation{
		Pod: pod, Node: "a", Slot: ledger.SlotRef{Namespace: "ns", Name: "r-a", Slot: "s"},
		Request: placementtest.Request(1000),
	})
	assert.Empty(t, w.ledger.Keeping())
}

// What a person decides stays, whenever it was.
func TestAnnotationsOfOthersStay(t *testing.T) {
	const scaleDown = v1alpha1.ScaleDownDisabledAnnotation
	disabledByOthers := maps.Clone(all)
	disabledByOthers[scaleDown] = "false"
	tests := map[string]struct {
		before, while string // what a person writes, or ""
		kept, after   map[string]string
	}{
		"true before":     {before: "true", kept: all, after: map[string]string{scaleDown: "true"}},
		"false before":    {before: "false", kept: disabledByOthers, after: map[string]string{scaleDown: "false"}},
		"false meanwhile": {while: "false", kept: disabledByOthers, after: map[string]string{scaleDown: "false"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newNodesWorld(t)
			if tt.before != "" {
				w.annotate("a", scaleDown, tt.before)
			}
			w.reserve("a")
			w.after(soon)
			if tt.while != "" {
				w.annotate("a", scaleDown, tt.while)
			}
			w.after(soon)
			w.has("a", tt.kept)
			w.release("a")
			w.after(late)
			w.has("a", tt.after)
			assert.Zero(t, w.failed())
		})
	}
}

// What somebody takes off is put on again: "false" is how to say no.
func TestAnnotationsComeBack(t *testing.T) {
	w := newNodesWorld(t)
	w.reserve("a")
	w.after(soon)
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	delete(node.Annotations, v1alpha1.DoNotDisruptAnnotation)
	_, err = w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{FieldManager: "somebody"})
	require.NoError(t, err)
	w.after(soon)
	w.has("a", all)
}

// The next server, or the policy, takes off what a server before has put on.
func TestAnnotationsOfAServerBefore(t *testing.T) {
	for name, change := range map[string]func(*nodesWorld){
		"nothing is kept any more": func(w *nodesWorld) { w.release("a") },
		"the policy changed":       func(w *nodesWorld) { w.switchOff() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newNodesWorld(t)
			w.reserve("a")
			w.after(soon)
			w.restart()
			w.after(late)
			w.has("a", all)
			change(w)
			w.restart()
			w.after(late)
			w.has("a", bare)
		})
	}
}

func TestFailedWritesAreRepeated(t *testing.T) {
	w := newNodesWorld(t)
	denied := true
	w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return denied, nil, errors.New("denied")
	})
	w.reserve("a")
	w.after(soon)
	assert.Equal(t, 1, w.failed(), "not every second")
	require.EqualError(t, w.p.Trouble(), "the last write failed; the log tells more", "everybody may read it")
	denied = false
	w.after(againAfter)
	w.has("a", all)
	require.NoError(t, w.p.Trouble())
}

func TestANodeThatIsGoneIsNoTrouble(t *testing.T) {
	w := newNodesWorld(t)
	w.p.write(t.Context(), change{&cluster.Node{Name: "gone", UID: "u"}, false})
	require.NoError(t, w.p.Trouble())
	w.reserve("a")
	require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	w.after(soon)
	assert.Zero(t, w.failed())
}

// What is kept may change while many nodes are written, and the annotation may be somebody else's, which no write takes
// off.
func TestManyNodesAreWrittenInTurn(t *testing.T) {
	w := newNodesWorld(t)
	const nodes = 2*writesPerSecond + 5
	for i := range nodes {
		w.others = append(w.others, &cluster.Node{
			Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
			Annotations: map[string]string{v1alpha1.KeepsCapacityAnnotation: "true"},
		})
	}
	w.after(releaseAfter)
	written := map[string]int{}
	for range 3 {
		due := w.p.look(w.now)
		assert.LessOrEqual(t, len(due), writesPerSecond, "at once")
		for _, c := range due {
			w.p.write(t.Context(), c)
			written[c.node.Name]++
		}
	}
	assert.Len(t, written, nodes)
	for name, times := range written {
		assert.Equal(t, 1, times, "node %s", name)
	}
	w.now = w.now.Add(againAfter)
	w.reserve("a")
	w.after(soon)
	w.has("a", all)
}
