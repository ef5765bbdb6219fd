package requeue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fakeAPI is an API server that is written to, for pods.
type fakeAPI struct {
	mu     sync.Mutex
	writes []string        // nominations: "pod -> node", "pod -x node"
	woken  []string        // the pods of annotations and nominations, in order
	wakes  []string        // those of annotations
	values map[string]bool // of the annotation, so far
	// answer decides how an annotation ends, and nomination how a write in writes does.
	answer     func(ctx context.Context, pod ledger.PodRef) error
	nomination func(write string) error
}

func (a *fakeAPI) Annotate(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error {
	value := annotations[v1alpha1.RetryAnnotation]
	if len(annotations) != 1 || value == "" {
		return fmt.Errorf("unexpected annotations %q", annotations)
	}
	if a.answer != nil {
		if err := a.answer(ctx, pod); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.woken, a.wakes = append(a.woken, pod.Name), append(a.wakes, pod.Name)
	if a.values == nil {
		a.values = map[string]bool{}
	}
	a.values[value] = true
	return nil
}

func (a *fakeAPI) write(text string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = append(a.writes, text)
	if a.nomination != nil {
		return a.nomination(text)
	}
	return nil
}

func (a *fakeAPI) Nominate(_ context.Context, pod ledger.PodRef, _ uint64, node string) error {
	err := a.write(pod.Name + " -> " + node)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.woken = append(a.woken, pod.Name)
	}
	return err
}

func (a *fakeAPI) Clear(_ context.Context, pod ledger.PodRef, node string) error {
	return a.write(pod.Name + " -x " + node)
}

// names are the pods that were woken.
func (a *fakeAPI) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.woken)
}

// patched are those that were woken by an annotation.
func (a *fakeAPI) patched() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.wakes)
}

func (a *fakeAPI) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

func silentLog() logrus.FieldLogger {
	log, _ := logrustest.NewNullLogger()
	return log
}

// world is Pods that run, with a ledger of nodes of 4 CPUs each.
type world struct {
	policy *policy.Store
	*Pods
	Stop     func() // ends Run
	t        *testing.T
	ledger   *ledger.Ledger
	api      *fakeAPI
	pods     *cluster.Pods
	recorder *events.FakeRecorder
	trouble  func(pod *cluster.Pod) (ledger.Reason, string) // with claims; nil means that there is none
	ready    chan struct{}                                  // closed: the server is ready
}

// advance lets time pass in the bubble and waits until everybody has acted.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := makeWorld(t, nodes...)
	w.Stop = background.Run(t, w.Run)
	synctest.Wait()
	return w
}

// makeWorld starts nothing.
func makeWorld(t *testing.T, nodes ...string) *world {
	w := &world{
		t: t, ledger: ledger.New(ledger.Options{FirstRevision: 100}), api: &fakeAPI{}, pods: cluster.NewPods(),
		policy:   policy.NewStore(policy.Default(), time.Minute),
		recorder: events.NewFakeRecorder(1000), ready: make(chan struct{}),
	}
	placementtest.Nodes(w.ledger, 4000, nodes...)
	w.Pods = New(Options{
		Ledger: w.ledger.Reader, Gates: gates.New(w.policy), Question: placementtest.NewBuilder(w.ledger), Pods: w.pods,
		Patcher: w.api, Nominator: w.api,
		Nodes:    placementtest.Plain(append(nodes, "a", "b", "c")...),
		Recorder: w.recorder, Metrics: metrics.New(), Log: silentLog(),
		ClaimTrouble: func(pod *cluster.Pod) (ledger.Reason, string) {
			if w.trouble == nil {
				return ledger.Fits, ""
			}
			return w.trouble(pod)
		},
		Ready: func(ctx context.Context) error {
			select {
			case <-w.ready:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	return w
}

// count is how many pods were woken, as the metric has it.
func (w *world) count() int {
	return metricstest.Counted(w.t, w.Metrics, "wakeups_total")
}

// put has the cluster have these pods.
func (w *world) put(pods ...*cluster.Pod) {
	for _, pod := range pods {
		w.pods.Put(pod)
	}
}

// pod also asks for one of each of some extended resources.
func (w *world) pod(name, cpu string, priority int32, extended ...v1.ResourceName) *cluster.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	for _, name := range extended {
		requests[name] = resource.MustParse("1")
	}
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"name": name},
		},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: requests,
		}}}},
	})
	require.NoError(w.t, err)
	return info
}

// reserveFor has a reservation of one slot, which consumers may use, if there are any.
func (w *world) reserveFor(slot ledger.SlotRef, policy ledger.AllocatePolicy, consumers *metav1.LabelSelector) {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: slot.Namespace, Name: slot.Name},
		Spec: v1alpha1.ReservationSpec{
			AllocatePolicy: v1alpha1.AllocatePolicy(policy), Slots: []v1alpha1.Slot{{Name: slot.Slot}},
		},
	}
	if consumers != nil {
		rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: consumers}
	}
	require.NoError(w.t, w.Question.Matcher.Set(rsv))
}

// match has the reservation r match the pods of these names.
func (w *world) match(names ...string) {
	w.reserveFor(testSlot, ledger.Once, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: names},
	}})
}

// events are those that were written since it was asked for last.
func (w *world) events() (list []string) {
	for len(w.recorder.Events) > 0 {
		list = append(list, <-w.recorder.Events)
	}
	return list
}

func (w *world) reserve(p *cluster.Pod, node string, ttl time.Duration) {
	now := time.Now()
	result := w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{p.Placement(node)}, ledger.AllOrNothing, now.Add(ttl)),
		now)
	require.Equal(w.t, 1, result.Granted)
}

func (w *world) observeBound(p *cluster.Pod, node string) {
	w.ledger.ObservePod(ledger.PodObservation{Pod: p.Ref, Node: node, Request: p.Request})
}

// refuse does what filter does for a pod that fits none of the nodes offered.
func (w *world) refuse(p *cluster.Pod, offered ...string) {
	w.Await(p, w.ledger.Revision(), offered, false)
}

func (w *world) unreserve(p *cluster.Pod, node string) {
	w.ledger.Unreserve([]ledger.Placement{p.Placement(node)})
}
